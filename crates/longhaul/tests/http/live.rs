use longhaul::Status;
use longhaul::model::http::{ApiType, CustomProvider, Http, HttpOptions, ModelSpec, NoKeys};

use crate::stage::{journal, replies_and_waits, solo, start, submit};

/// A real model, where there is one: `LONGHAUL_LIVE_BASE_URL=http://127.0.0.1:18180/v1`. Structure, not wording.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_model_answers_over_each_of_three_wires() {
    let Ok(url) = std::env::var("LONGHAUL_LIVE_BASE_URL") else { return };
    let http = Http::new(HttpOptions::default()).unwrap();
    for api_type in [ApiType::Chat, ApiType::Responses, ApiType::Anthropic] {
        let name = std::env::var("LONGHAUL_LIVE_MODEL").unwrap_or_else(|_| "default".to_owned());
        let mut spec = ModelSpec::parse(&format!("live/{name}")).unwrap();
        spec.settings.max_tokens = Some(60);
        let base_url = Some(url.clone());
        spec.custom = Some(CustomProvider { api_type: Some(api_type), base_url, token_key: None });
        let model: std::sync::Arc<dyn longhaul::model::Model> = http.model(&spec, &NoKeys).unwrap();
        let longhaul = start(solo(&model)).await;
        let id = submit(&longhaul, "Say hello in one short sentence.").await;
        let waited = tokio::time::timeout(std::time::Duration::from_secs(300), longhaul.wait([id])).await;
        let done = waited.unwrap().unwrap().tasks.remove(0);
        println!("{api_type:?}: {:?} {:?} {:?}", done.output, done.head.usage, done.head.error);
        assert_eq!(done.head.status, Status::Completed);
        assert!(!done.output.is_empty() && done.head.usage.input > 0 && done.head.usage.output > 0);
        assert_eq!(done.head.unpriced, 1, "nobody knows what it costs");
        assert_eq!(replies_and_waits(&journal(&longhaul, id).await).0, 1);
        longhaul.shutdown().await;
    }
}
