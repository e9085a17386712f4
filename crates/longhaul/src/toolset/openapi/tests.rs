use serde_json::{Value, json};

use super::OpenApi;
use crate::tool::ToolEffects;
use crate::toolset::http_client::SecretHeaders;
use crate::toolset::loopback::{LoopbackServer, RecordedRequest, http_response};
use crate::toolset::tool_fixture::ToolFixture;
use crate::toolset::{OwnServer, Toolset as _, ToolsetContext};

const PETS: &str = r##"
openapi: 3.0.3
info: {title: Pets, version: "1"}
servers:
  - url: /api/{version}/
    variables: {version: {default: v1}}
paths:
  /pets:
    parameters:
      - {name: trace, in: header, schema: {type: string}}
    get:
      operationId: list-pets
      summary: Lists pets.
      parameters:
        - {name: tag, in: query, description: Only these., schema: {type: array, items: {type: string}}}
        - {name: ids, in: query, explode: false, schema: {type: array, items: {type: integer}}}
        - {name: "filter[age]", in: query, schema: {type: integer}}
        - {name: range, in: query, style: deepObject, schema: {type: object}}
        - {name: session, in: cookie, schema: {type: string}}
        - {name: Authorization, in: header, schema: {type: string}}
      responses: {200: {description: fine}}
    post:
      operationId: createPet
      requestBody:
        required: true
        content:
          application/json:
            schema: {$ref: "#/components/schemas/Pet"}
  /pets/{petId}:
    get:
      summary: One pet.
      parameters: [{$ref: "#/components/parameters/petId"}]
    delete:
      operationId: createPet
      description: Deletes a pet.
    put:
      operationId: rename
      requestBody: {content: {application/x-www-form-urlencoded: {schema: {type: object, properties: {name: {type: string}, tags: {type: array, items: {type: string}}}}}}}
  /notes:
    post:
      operationId: note
      requestBody: {required: true, content: {text/plain: {schema: {type: string}}}}
    patch:
      operationId: bulk
      requestBody: {content: {application/json: {schema: {type: array, items: {type: integer}}}}}
  /upload:
    post:
      operationId: upload
      requestBody: {content: {multipart/form-data: {schema: {type: object}}}}
components:
  parameters:
    petId: {name: petId, in: path, required: true, schema: {type: integer}}
  schemas:
    Pet:
      type: object
      required: [id, name]
      properties:
        id: {type: integer, readOnly: true}
        name: {type: string}
        friend: {$ref: "#/components/schemas/Pet"}
"##;

/// A server that serves the document, and echoes every other request.
async fn pets() -> LoopbackServer {
    LoopbackServer::start(|asked| match asked.line.as_str() {
        line if line.starts_with("GET /spec/openapi.yaml") => {
            http_response(200, &[("content-type", "application/yaml")], PETS)
        }
        "GET /api/v1/pets/404" => http_response(404, &[], "no such pet for key-0123456789"),
        "DELETE /api/v1/pets/7" => http_response(204, &[], ""),
        _ => http_response(200, &[], echo(asked)),
    })
    .await
}

fn echo(asked: &RecordedRequest) -> String {
    json!({"line": asked.line, "body": asked.body, "type": asked.header("content-type"), "trace": asked.header("trace"),
        "cookie": asked.header("cookie")})
    .to_string()
}

fn headers() -> SecretHeaders {
    [("X-Api-Key", "key-0123456789")].into_iter().collect()
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[tokio::test]
async fn each_operation_is_a_tool_and_its_arguments_go_where_they_belong() {
    let server = pets().await;
    let mut fixture = ToolFixture::new(&OpenApi::new(server.url("/spec/openapi.yaml"), headers())).await;
    assert_eq!(server.requests()[0].header("x-api-key"), Some("key-0123456789"));
    let mut names: Vec<String> = fixture.tools.iter().map(|tool| tool.spec().name).collect();
    names.sort_unstable();
    assert_eq!(names, ["bulk", "createPet", "createPet_2", "get_pets_petId", "list_pets", "note", "rename"]);

    let spec = fixture.tool("list_pets").spec();
    assert_eq!(spec.description, "Lists pets.\n(GET /pets)");
    let mut listed: Vec<&String> = spec.parameters["properties"].as_object().unwrap().keys().collect();
    listed.sort_unstable();
    assert_eq!(listed, ["filter_age", "ids", "range", "session", "tag", "trace"]);
    assert_eq!(spec.parameters["properties"]["tag"]["description"], "Only these.");
    let arguments = json!({"tag": ["a b", "c"], "ids": [1, 2], "filter_age": 3, "range": {"from": 1}, "session": "s;x",
        "trace": "t1"});
    let asked = parsed(&fixture.call_text("list_pets", arguments).await);
    assert_eq!(asked["line"], "GET /api/v1/pets?tag=a+b&tag=c&ids=1%2C2&filter%5Bage%5D=3&range%5Bfrom%5D=1");
    assert_eq!(asked["trace"], "t1");
    assert_eq!(asked["cookie"], "session=s%3Bx");

    let spec = fixture.tool("createPet").spec();
    assert_eq!(spec.parameters["required"], json!(["body_name"]));
    assert_eq!(spec.parameters["properties"]["body_friend"], json!({}), "it comes back to itself");
    let asked = parsed(
        &fixture.call_text("createPet", json!({"body_name": "Rex", "body_friend": {"name": "Ada"}})).await,
    );
    assert_eq!(asked["line"], "POST /api/v1/pets");
    assert_eq!(parsed(asked["body"].as_str().unwrap()), json!({"name": "Rex", "friend": {"name": "Ada"}}));
    assert_eq!(asked["type"], "application/json");

    assert_eq!(
        parsed(&fixture.call_text("get_pets_petId", json!({"petId": 7})).await)["line"],
        "GET /api/v1/pets/7"
    );
    let asked = parsed(&fixture.call_text("get_pets_petId", json!({"petId": "7/owner?x#y"})).await);
    assert_eq!(asked["line"], "GET /api/v1/pets/7%2Fowner%3Fx%23y");
    assert_eq!(
        fixture.call_text("createPet_2", json!({"petId": "7"})).await,
        "Done: status 204, and nothing else was said."
    );
    let asked = parsed(
        &fixture.call_text("rename", json!({"petId": 7, "body_name": "A&B", "body_tags": ["x", "y"]})).await,
    );
    assert_eq!(asked["body"], "name=A%26B&tags=x&tags=y");
    assert_eq!(parsed(&fixture.call_text("note", json!({"body": "words"})).await)["body"], "words");
    assert_eq!(parsed(&fixture.call_text("bulk", json!({"body": [1, 2]})).await)["body"], "[1,2]");

    assert_eq!(fixture.tool("list_pets").effects(), ToolEffects::READ_ONLY);
    assert_eq!(fixture.tool("createPet").effects(), ToolEffects::default());
}

#[tokio::test]
async fn errors_say_which_operation_and_show_no_secret() {
    let server = pets().await;
    let mut fixture =
        ToolFixture::new(&OpenApi::new(server.url("/spec/openapi.yaml?token=hidden"), headers())).await;
    for (tool, arguments, says) in [
        ("get_pets_petId", json!({}), "get_pets_petId (GET /pets/{petId}): the argument 'petId' is missing"),
        (
            "get_pets_petId",
            json!({"petId": "7/../../admin"}),
            "the argument 'petId' cannot be '7/../../admin'",
        ),
        ("get_pets_petId", json!({"petId": ".."}), "the argument 'petId' cannot be '..'"),
        ("get_pets_petId", json!({"petId": ""}), "the argument 'petId' cannot be ''"),
        (
            "get_pets_petId",
            json!({"petId": 404}),
            "(GET /pets/{petId}): status 404: no such pet for [secret]",
        ),
        ("createPet", json!({"name": "x"}), "there is no argument 'name'; there are: trace, body_"),
        ("list_pets", json!({"trace": "a\nb"}), "list_pets (GET /pets): "),
    ] {
        let error = fixture.call_error(tool, arguments).await;
        assert!(error.contains(says) && !error.contains("key-0123456789"), "{error}");
    }
    let shown = format!("{:?}", OpenApi::new("http://x/spec?token=hidden", headers()));
    assert!(!shown.contains("hidden") && !shown.contains("key-0123456789"), "{shown}");
}

async fn refused(at: String) -> String {
    OpenApi::new(at, SecretHeaders::default())
        .open(&ToolsetContext::new("a"))
        .await
        .err()
        .unwrap()
        .to_string()
}

#[tokio::test]
async fn a_document_that_cannot_be_used_is_named() {
    let server = LoopbackServer::start(|asked| match asked.line.as_str() {
        "GET /empty" => http_response(200, &[], "openapi: 3.1.0"),
        "GET /old" => http_response(200, &[], r#"{"swagger": "2.0"}"#),
        "GET /upload" => http_response(
            200,
            &[],
            json!({"openapi": "3.0.0", "paths": {"/u": {"post": {"requestBody": {"content": {"image/png": {}}}}}}}).to_string(),
        ),
        _ => http_response(500, &[], "down"),
    })
    .await;
    for (path, says) in [
        ("/empty", "/empty: it describes no operation"),
        ("/old", "/old: it is version 2.0"),
        ("/upload", "none of its 1 operation can be used; POST /u: its body is image/png"),
        ("/down", "/down: cannot download the document: status 500"),
    ] {
        let error = refused(server.url(path)).await;
        assert!(error.contains("toolset 'openapi'") && error.contains(says), "{error}");
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("spec.json");
    assert!(refused(file.display().to_string()).await.contains("spec.json: No such file"));
    let relative = json!({"openapi": "3.0.0", "paths": {"/u": {"get": {}}}});
    std::fs::write(&file, relative.to_string()).unwrap();
    assert!(refused(file.display().to_string()).await.contains("write a whole URL under `servers`"));
    let whole =
        json!({"openapi": "3.0.0", "servers": [{"url": server.url("/base")}], "paths": {"/u": {"get": {}}}});
    std::fs::write(&file, whole.to_string()).unwrap();
    let mut fixture =
        ToolFixture::new(&OpenApi::new(file.display().to_string(), SecretHeaders::default())).await;
    assert!(fixture.call_error("get_u", json!({})).await.contains("get_u (GET /u): status 500"));
    assert_eq!(server.requests().last().unwrap().line, "GET /base/u");
}

#[tokio::test]
async fn a_document_can_neither_come_from_the_own_server_nor_lead_there() {
    let own = LoopbackServer::start(|_| http_response(200, &[], PETS)).await;
    let server = OwnServer::new([own.at], []);
    let openapi = OpenApi::new(own.url("/openapi.json"), SecretHeaders::default()).own_server(server.clone());
    let error = openapi.open(&ToolsetContext::new("a")).await.err().unwrap();
    assert!(error.why.contains("its own agents may not use"), "{}", error.why);
    let document = PETS.replace("/api/{version}/", &own.url("/api/{version}/"));
    let other = LoopbackServer::start(move |_| http_response(200, &[], document.clone())).await;
    let openapi = OpenApi::new(other.url("/openapi.json"), SecretHeaders::default()).own_server(server);
    let mut fixture = ToolFixture::new(&openapi).await;
    let error = fixture.call_error("list-pets", json!({})).await;
    assert!(error.contains("its own agents may not use") || error.contains("another server"), "{error}");
    assert_eq!(own.requests().len(), 0);
}
