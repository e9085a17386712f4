//! What a team file says reaches the provider.

use longhaul::teamfile::{Environment, TeamBundle, assemble};
use longhaul::{Longhaul, Order, Status};
use serde_json::Value;

use crate::http::server::{Act, Server, says};
use crate::http::stage::{end, http};

/// A team of one agent whose answer has a shape, run against a server that answers wrongly first.
async fn asked_for_a_city(provider: &str) -> (Vec<Value>, String) {
    let server = Server::start(|asked| match asked.number {
        0 => Act::Stream(says("It is Paris.")),
        _ => Act::Stream(says("{\"city\": \"Paris\"}")),
    })
    .await;
    let text = format!(
        "providers: {{mine: {{base_url: '{}', {provider}}}}}\nagents:\n  root:\n    model: mine/m\n    instruction: Be brief.\n    \
         structured_output:\n      name: place\n      strict: true\n      schema: {{type: object, properties: {{city: {{type: string}}}}, required: [city]}}\n",
        server.url()
    );
    let environment = Environment::new(http(), |_: &str| None, "data");
    let made = assemble(&TeamBundle::from_text("team.yaml", &text), &environment).unwrap();
    let longhaul = Longhaul::builder(made.team).start().await.unwrap();
    let id = longhaul.submit(Order::new("root", "Where?")).await.unwrap();
    let done = end(&longhaul, id).await;
    assert_eq!(done.state.status, Status::Completed, "{:?}", done.state.error);
    (server.asked().into_iter().map(|asked| asked.body).collect(), done.output)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_structured_output_of_a_team_file_reaches_the_provider() {
    let (bodies, answer) = asked_for_a_city("api_type: openai_chatcompletions").await;
    assert_eq!((bodies.len(), answer.as_str()), (2, "{\"city\": \"Paris\"}"));
    for body in &bodies {
        let format = &body["response_format"]["json_schema"];
        assert_eq!((&format["name"], &format["strict"]), (&"place".into(), &true.into()), "{body}");
        assert_eq!(format["schema"]["required"][0], "city");
    }
    // The correction names the schema, and tells it.
    let told = bodies[1]["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
    assert!(told.contains("schema `place`:\n{") && told.contains("\"city\""), "{told}");
}
