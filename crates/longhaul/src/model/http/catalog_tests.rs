use secrecy::SecretString;
use serde_json::json;

use super::*;
use crate::model::Model as _;
use crate::model::http::{HttpOptions, NoKeys};
use crate::model::settings::Thinking;

fn http() -> HttpClient {
    HttpClient::new(HttpOptions::default()).unwrap()
}

fn spec(name: &str) -> ModelSpec {
    ModelSpec::parse(name).unwrap()
}

fn with(names: &'static [&'static str]) -> impl KeySource {
    move |name: &str| names.contains(&name).then(|| SecretString::from(format!("sk-secret-of-{name}")))
}

fn all(_: &str) -> Option<SecretString> {
    Some(SecretString::from("sk-secret".to_owned()))
}

#[test]
fn every_provider_that_has_a_place_can_be_asked_with_its_usual_key() {
    let http = http();
    for entry in PROVIDERS.iter().filter(|entry| entry.base_url.is_some_and(|url| !url.is_empty())) {
        let name = format!("{}/some-model", entry.name);
        let model = http.model(&spec(&name), &all).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(model.name(), name);
        assert!(!format!("{model:?}").contains("secret"));
        match http.model(&spec(&name), &NoKeys) {
            Ok(_) => assert!(entry.keyless, "{name} was made without a key"),
            Err(error) => {
                assert!(!entry.keyless && error.to_string().contains(entry.keys[0]), "{name}: {error}");
            }
        }
    }
}

#[test]
fn what_cannot_be_is_refused_with_a_clear_word() {
    let http = http();
    let wrong = |spec: &ModelSpec| http.model(spec, &all).unwrap_err().to_string();
    for name in ["gpt-5", "", "/x", "openai/"] {
        assert!(ModelSpec::parse(name).unwrap_err().to_string().contains("provider/model"), "{name}");
    }
    assert!(wrong(&spec("amazon-bedrock/x")).contains("not supported yet"));
    assert!(wrong(&spec("opena1/gpt-5")).contains("openai, google"));
    assert!(wrong(&spec("azure/gpt-5")).contains("base_url"));
    let custom = Some(CustomProvider::default());
    assert!(wrong(&ModelSpec { custom, ..spec("acme/one") }).contains("base_url"));
    let nowhere = ModelSpec { base_url: Some("nowhere".into()), ..spec("openai/gpt-5") };
    assert!(wrong(&nowhere).contains("base_url"));
    let mut thinks = spec("openai/gpt-5");
    thinks.settings.thinking = Some(Thinking::Tokens(5));
    assert!(wrong(&thinks).contains("openai/gpt-5: thinking"), "{}", wrong(&thinks));
    let named = ModelSpec { token_key: Some("MY_KEY".into()), ..spec("ollama/x") };
    let error = http.model(&named, &with(&["OPENAI_API_KEY"])).unwrap_err();
    assert!(error.to_string().contains("set MY_KEY"), "a key that is named must be there: {error}");
}

#[test]
fn a_provider_of_ones_own_speaks_what_it_says() {
    let http = http();
    for (api_type, path) in [
        (None, "/chat/completions"),
        (Some(ApiType::Responses), "/responses"),
        (Some(ApiType::Anthropic), "/messages"),
        (Some(ApiType::Gemini), "/models/one:streamGenerateContent?alt=sse"),
    ] {
        let base_url = Some("http://127.0.0.1:1/v1".to_owned());
        let custom = CustomProvider { api_type, base_url, ..CustomProvider::default() };
        let model = http.model(&ModelSpec { custom: Some(custom), ..spec("acme/one") }, &NoKeys).unwrap();
        assert_eq!(model.path(), path);
    }
    let json = r#"{"api_type": "openai_responses", "base_url": "http://a", "token_key": "K"}"#;
    let custom: CustomProvider = serde_json::from_str(json).unwrap();
    assert_eq!(custom.api_type, Some(ApiType::Responses));
}

#[test]
fn a_usual_key_goes_to_its_provider_and_to_this_machine_and_nowhere_else() {
    let http = http();
    let at = |name: &str, url: &str| ModelSpec { base_url: Some(url.to_owned()), ..spec(name) };
    for url in [
        "https://api.openai.com/v1",
        "https://eu.api.openai.com/v1",
        "http://127.0.0.1:8080/v1",
        "http://localhost:4000",
        "http://[::1]:4000/v1",
    ] {
        assert!(http.model(&at("openai/gpt-5", url), &all).is_ok(), "{url}");
    }
    for url in [
        "https://gateway.example/v1",
        "https://api.openai.com.evil.example/v1",
        "https://notopenai.com/v1",
        "http://api.openai.com/v1",
        "http://10.0.0.7:8000/v1",
        "https://127.0.0.1.evil.example",
    ] {
        let error = http.model(&at("openai/gpt-5", url), &all).unwrap_err();
        assert!(matches!(error, CatalogError::KeyForOtherHost { .. }), "{url}: {error}");
        let error = error.to_string();
        assert!(error.contains("token_key: OPENAI_API_KEY") && error.contains("local/"), "{error}");
        assert!(!error.contains("sk-secret"));
        let named = ModelSpec { token_key: Some("OPENAI_API_KEY".into()), ..at("openai/gpt-5", url) };
        assert!(http.model(&named, &all).is_ok(), "{url}");
        assert!(http.model(&at("openai/gpt-5", url), &NoKeys).is_ok(), "without a key there is none to lose");
        assert!(http.model(&at("local/gpt-5", url), &all).is_ok(), "nor where the provider has none");
    }
    // Azure has no default URL.
    assert!(http.model(&at("azure/gpt-5", "https://me.openai.azure.com"), &all).is_ok());
}

#[test]
fn azure_is_found_with_and_without_its_path() {
    assert_eq!(azure("https://me.openai.azure.com/"), "https://me.openai.azure.com/openai/v1");
    assert_eq!(azure("https://me.openai.azure.com/openai/v1/"), "https://me.openai.azure.com/openai/v1/");
}

#[tokio::test]
async fn auto_takes_the_first_key_and_says_what_to_set() {
    let http = http();
    let model =
        http.auto_model_among(&with(&["OPENAI_API_KEY", "XAI_API_KEY", "GITHUB_TOKEN"]), &[]).await.unwrap();
    assert!(model.name().starts_with("openai/"), "{}", model.name());
    let none = http.auto_model_among(&with(&["GITHUB_TOKEN"]), &[("ollama", "http://127.0.0.1:9/v1")]).await;
    let error = none.unwrap_err().to_string();
    for word in ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "Ollama"] {
        assert!(error.contains(word), "{error}");
    }
}

/// Chat completions refuse tools of newer models with 400, and some models do not exist there.
#[test]
fn the_api_is_chosen_by_model() {
    let http = http();
    let path = |spec: &ModelSpec| http.model(spec, &all).unwrap().path();
    for (name, expected) in [
        ("openai/gpt-5.4", "/responses"),
        ("openai/gpt-5.4-mini", "/responses"),
        ("openai/gpt-5.6-terra", "/responses"),
        ("openai/gpt-6", "/responses"),
        ("openai/gpt-5-pro", "/responses"),
        ("openai/gpt-5.1-codex", "/responses"),
        ("openai/ft:gpt-5.4:me::x", "/responses"),
        ("openai/gpt-5", "/chat/completions"),
        ("openai/gpt-5.2", "/chat/completions"),
        ("openai/gpt-4o", "/chat/completions"),
        ("openai/gpt-4.1-2025-04-14", "/chat/completions"),
        ("openai/o4-mini", "/chat/completions"),
        ("openrouter/openai/gpt-5.4", "/chat/completions"),
    ] {
        assert_eq!(path(&spec(name)), expected, "{name}");
    }
    let asked = ModelSpec { api_type: Some(ApiType::Chat), ..spec("openai/gpt-5.4") };
    assert_eq!(path(&asked), "/chat/completions", "what is said counts more");
    let mut opts = spec("openai/gpt-5");
    opts.settings.provider_opts.insert("api_type".into(), "openai_responses".into());
    assert_eq!(path(&opts), "/responses");
    opts.settings.provider_opts.insert("api_type".into(), "soap".into());
    let error = http.model(&opts, &all).unwrap_err().to_string();
    assert!(error.contains("api_type") && error.contains("openai_responses"), "{error}");
}

/// Options that docker-agent handles itself do not go into the body.
#[test]
fn options_of_docker_agent_are_translated_or_refused() {
    let http = http();
    let with = |name: &str, key: &str, value: serde_json::Value| {
        let mut spec = spec(name);
        spec.settings.provider_opts.insert(key.into(), value);
        http.model(&spec, &all)
    };
    let model = with("anthropic/claude-sonnet-4-5", "interleaved_thinking", true.into()).unwrap();
    assert_eq!(model.header("anthropic-beta").as_deref(), Some("interleaved-thinking-2025-05-14"));
    assert!(model.options().is_empty());
    let model = with("anthropic/claude-sonnet-4-5", "interleaved_thinking", false.into()).unwrap();
    assert!(model.header("anthropic-beta").is_none() && model.options().is_empty());
    let model = with("google/gemini-3-pro", "google_search", true.into()).unwrap();
    assert_eq!(model.options()["tools"], serde_json::json!([{"googleSearch": {}}]));
    let model = with("ollama/x", "context_size", 4096.into()).unwrap();
    assert!(model.options().is_empty() && model.context_window() == Some(4096));
    let model = with("openai/gpt-5", "service_tier", "flex".into()).unwrap();
    assert_eq!(model.options()["service_tier"], "flex", "what the provider itself takes is its own");
    for (name, key, value) in [
        ("openai/gpt-5", "interleaved_thinking", serde_json::json!(true)),
        ("openai/gpt-5", "google_search", serde_json::json!(true)),
        ("openai/gpt-5", "transport", serde_json::json!("websocket")),
        ("dmr/x", "runtime_flags", serde_json::json!(["--threads", "8"])),
        ("google/gemini-3-pro", "project", serde_json::json!("p")),
        ("anthropic/claude-sonnet-4-5", "interleaved_thinking", serde_json::json!("yes")),
    ] {
        let error = with(name, key, value).unwrap_err().to_string();
        assert!(error.contains(&format!("provider_opts: {key}")), "{error}");
    }
}

/// The keys on docker-agent's provider pages, as of September 2026.
#[test]
fn newer_options_of_docker_agent_are_translated_or_refused() {
    let http = http();
    let made = |name: &str, thinking: Option<Thinking>, opts: serde_json::Value| {
        let mut spec = spec(name);
        spec.settings.thinking = thinking;
        spec.settings.provider_opts = opts.as_object().unwrap().clone();
        http.model(&spec, &all)
    };
    let low = || Some(Thinking::Effort("low".into()));
    let model =
        made("ollama/x", None, json!({"extra_body": {"reasoning_effort": "none"}, "min_p": 0.1})).unwrap();
    assert_eq!(json!(model.options()), json!({"reasoning_effort": "none", "min_p": 0.1}));
    let headers = json!({"http_headers": {"X-Tenant-Id": "my-team"}, "service_tier": "fast"});
    let model = made("openai/gpt-4o", None, headers).unwrap();
    assert_eq!(model.header("x-tenant-id").as_deref(), Some("my-team"));
    assert_eq!(json!(model.options()), json!({"service_tier": "fast"}));
    let opts = json!({"fallbacks": ["claude-opus-4-8"], "interleaved_thinking": true});
    let model = made("anthropic/claude-fable-5", None, opts).unwrap();
    assert_eq!(json!(model.options()), json!({"fallbacks": [{"model": "claude-opus-4-8"}]}));
    assert_eq!(
        model.header("anthropic-beta").as_deref(),
        Some("interleaved-thinking-2025-05-14,server-side-fallback-2026-06-01")
    );
    let model =
        made("google/gemini-3-pro", None, json!({"url_context": true, "top_k": 5, "seed": 7})).unwrap();
    assert_eq!(
        json!(model.options()),
        json!({"tools": [{"urlContext": {}}], "generationConfig": {"topK": 5, "seed": 7}})
    );
    let model = made("anthropic/claude-opus-4-6", low(), json!({"thinking_display": "omitted"})).unwrap();
    assert_eq!(json!(model.options()), json!({"thinking": {"display": "omitted"}}));
    for (name, thinking, key, value) in [
        ("anthropic/claude-opus-4-6", None, "thinking_display", json!("omitted")),
        ("anthropic/claude-opus-4-6", low(), "thinking_display", json!("display")),
        ("openai/gpt-4o", None, "http_headers", json!({"Authorization": "Bearer x"})),
        ("openai/gpt-4o", None, "http_headers", json!({"a b": "x"})),
        ("openai/gpt-4o", None, "http_headers", json!(["x"])),
        ("openai/gpt-4o", None, "extra_body", json!("x")),
        ("openai/gpt-4o", None, "fallbacks", json!(["gpt-5"])),
        ("anthropic/claude-fable-5", None, "fallbacks", json!("claude-opus-4-8")),
        ("dmr/x", None, "raw_runtime_flags", json!("--threads 8")),
        ("dmr/x", None, "keep_alive", json!("30m")),
        ("dmr/x", None, "mode", json!("embedding")),
        ("dmr/x", None, "hf_overrides", json!({})),
        ("dmr/x", None, "gpu_memory_utilization", json!(0.9)),
        ("openai/gpt-4o", None, "api_version", json!("2024-12-01-preview")),
    ] {
        let error = made(name, thinking, json!({key: value})).unwrap_err().to_string();
        assert!(error.contains(&format!("provider_opts: {key}")), "{error}");
    }
}

/// An API with its version in the path takes no other; a deployment has it in the query.
#[test]
fn azures_version_goes_where_azure_looks_for_it() {
    let url = |base: &str, version: &str| {
        let mut spec = ModelSpec { base_url: Some(base.into()), ..spec("azure/gpt-4o") };
        spec.settings.provider_opts.insert("api_version".into(), version.into());
        let model = http().model(&spec, &all).unwrap();
        assert!(model.options().is_empty());
        model.url()
    };
    let place = "https://me.openai.azure.com";
    assert_eq!(url(place, "2024-12-01-preview"), format!("{place}/openai/v1/chat/completions"));
    assert_eq!(url(place, "preview"), format!("{place}/openai/v1/chat/completions?api-version=preview"));
    let deployed = format!("{place}/openai/deployments/d");
    let expected = format!("{deployed}/chat/completions?api-version=2024-12-01-preview");
    assert_eq!(url(&deployed, "2024-12-01-preview"), expected);
}

/// These models bind thinking to everything before it, which a summary changes: they are told to drop
/// thinking that no longer fits.
#[test]
fn thinking_that_is_bound_to_what_came_before_it_is_dropped_where_that_has_changed() {
    let http = http();
    let made = |name: &str, thinking: Option<Thinking>| {
        let mut spec = spec(name);
        spec.settings.thinking = thinking;
        let model = http.model(&spec, &all).unwrap();
        (json!(model.options()), model.header("anthropic-beta"))
    };
    let beta = Some("thinking-binding-controls-2026-08-01".to_owned());
    let binding = json!({"prefix_mismatch_behavior": "drop_block"});
    for name in
        ["claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5", "claude-fable-5-1", "claude-mythos-5-2"]
    {
        let (opts, header) = made(&format!("anthropic/{name}"), None);
        assert_eq!(opts, json!({"thinking": {"type": "adaptive", "block_binding": binding}}), "{name}");
        assert_eq!(header, beta, "{name}");
        let (opts, header) = made(&format!("anthropic/{name}"), Some(Thinking::Effort("low".into())));
        assert_eq!((opts, header), (json!({"thinking": {"block_binding": binding}}), beta.clone()), "{name}");
    }
    for name in ["claude-opus-5", "claude-fable-5", "claude-sonnet-4-5", "claude-mythos-preview"] {
        assert_eq!(made(&format!("anthropic/{name}"), None), (json!({}), None), "{name}");
    }
    assert_eq!(made("anthropic/claude-sonnet-5-5", Some(Thinking::Off)), (json!({}), None));
}

#[test]
fn a_place_without_a_version_is_completed_as_the_sdks_do() {
    let url = |name: &str, base: &str| {
        let spec = ModelSpec { base_url: Some(base.into()), token_key: Some("K".into()), ..spec(name) };
        http().model(&spec, &all).unwrap().url()
    };
    for base in ["https://gateway.example", "https://gateway.example/", "https://gateway.example/v1"] {
        assert_eq!(url("anthropic/claude-sonnet-4-5", base), "https://gateway.example/v1/messages");
    }
    let below = url("anthropic/claude-sonnet-4-5", "https://gateway.example/anthropic?a=b");
    assert_eq!(below, "https://gateway.example/anthropic/v1/messages?a=b");
    let gemini = url("google/gemini-3-pro", "https://gateway.example");
    assert!(gemini.starts_with("https://gateway.example/v1beta/models/gemini-3-pro:"), "{gemini}");
    assert_eq!(url("openai/gpt-5", "https://gateway.example"), "https://gateway.example/chat/completions");
    let places = [("anthropic".to_owned(), "http://127.0.0.1:9".to_owned())].into();
    let http = HttpClient::new(HttpOptions { base_urls: places, ..HttpOptions::default() }).unwrap();
    let model = http.model(&spec("anthropic/claude-sonnet-4-5"), &all).unwrap();
    assert_eq!(model.url(), "http://127.0.0.1:9/v1/messages");
}
