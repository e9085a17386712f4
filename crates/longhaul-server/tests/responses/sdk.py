"""The OpenAI SDK for Python as a client of Longhaul: begin URL | continue URL ID LAST | tour URL. Prints events as JSON."""

import sys
import time

import openai

client = openai.OpenAI(timeout=60)


def show(event):
    print(event.to_json(indent=None), flush=True)


def begin():
    deltas = 0
    stream = client.responses.create(model="alpha", input="count", background=True, stream=True)
    for event in stream:
        show(event)
        deltas += event.type == "response.output_text.delta"
        if deltas == 6:
            return


def carry_on(response_id, last):
    for event in client.responses.retrieve(response_id, stream=True, starting_after=int(last)):
        show(event)


def tour():
    assert [m.id for m in client.models.list()][:3] == ["alpha", "alpha/lead", "alpha/scout"]
    assert client.models.retrieve("alpha/lead").id == "alpha/lead"

    # A plain request.
    one = client.responses.create(model="alpha", input="hello", instructions="Be kind.", metadata={"a": "b"})
    assert one.status == "completed" and one.metadata == {"a": "b"}, one
    assert one.output_text.startswith("answer 1"), one
    assert one.usage.total_tokens == 15

    # A conversation.
    two = client.responses.create(model="alpha", input="again", previous_response_id=one.id)
    assert two.output_text.startswith("answer 2") and two.previous_response_id == one.id, two
    items = client.responses.input_items.list(one.id, order="asc")
    assert [item.role for item in items] == ["developer", "user"]

    # In the background, polled.
    slow = client.responses.create(model="alpha/lead", input="look", background=True)
    while slow.status in ("queued", "in_progress"):
        time.sleep(0.05)
        slow = client.responses.retrieve(slow.id)
    assert slow.output_text.startswith("answer 1"), slow
    full = client.responses.retrieve(slow.id, include=["longhaul.tool_calls", "longhaul.commentary"])
    assert [item.type for item in full.output] == ["message", "function_call", "function_call_output", "message"], full

    # The stream helper keeps a snapshot, and is strict about what comes.
    with client.responses.stream(model="alpha", input="look", reasoning={"summary": "auto"}) as stream:
        seen = [event.type for event in stream]
        final = stream.get_final_response()
    assert seen[0] == "response.created" and seen[-1] == "response.completed", seen
    assert final.output_text.startswith("answer 1"), final
    with client.responses.stream(response_id=final.id, starting_after=2) as stream:
        assert stream.get_final_response().id == final.id

    # Cancelled.
    gone = client.responses.create(model="alpha", input="count", background=True)
    assert client.responses.cancel(gone.id).status == "cancelled"

    # A key.
    keyed = [
        client.responses.create(model="alpha", input="once", extra_headers={"Idempotency-Key": "k"}).id
        for _ in range(2)
    ]
    assert keyed[0] == keyed[1]

    # A person is needed.
    asks = client.responses.create(model="alpha", input="write")
    assert asks.status == "in_progress" and "write" in asks.metadata["longhaul.needs"], asks

    # Errors have their classes.
    for kind, call in [
        (openai.NotFoundError, lambda: client.responses.create(model="gpt-4o", input="x")),
        (openai.NotFoundError, lambda: client.responses.retrieve("resp_00000")),
        (openai.BadRequestError, lambda: client.responses.create(model="alpha", input=[])),
        (
            openai.ConflictError,
            lambda: client.responses.create(model="alpha", input="x", extra_headers={"Idempotency-Key": "k"}),
        ),
    ]:
        try:
            call()
        except kind as error:
            assert error.body["message"], error
        else:
            raise AssertionError(kind)


parts = {"begin": begin, "continue": carry_on, "tour": tour}
parts[sys.argv[1]](*sys.argv[3:])
