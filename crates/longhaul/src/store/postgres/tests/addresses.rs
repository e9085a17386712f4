//! Addresses that do not lead to a store: each says what is wrong and what to do, and none repeats the password.

use super::*;

/// What opening says; checks that it gives nothing away.
async fn refusal(options: PostgresOptions, says: &[&str]) -> String {
    let error = PostgresStore::open(options.retry_for(Duration::from_millis(100))).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, StoreError::Database { .. }), "{error:?}");
    for word in says {
        assert!(text.contains(word), "{text} does not say {word}");
    }
    for secret in ["wrong-pa55", TestPostgres::PASSWORD, TestPostgres::USER] {
        assert!(!text.contains(secret), "{text}");
    }
    text
}

fn address(server: &TestPostgres, password: &str, database: &str, more: &str) -> PostgresOptions {
    let (user, port) = (TestPostgres::USER, server.port());
    PostgresOptions::new(&format!("postgres://{user}:{password}@127.0.0.1:{port}/{database}?{more}")).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_is_wrong_says_what_is_wrong() {
    let server = server_or_skip!();
    let right = TestPostgres::PASSWORD;
    refusal(address(server, "wrong-pa55", "postgres", ""), &["refuses the user or the password"]).await;
    refusal(address(server, right, "nowhere", ""), &["no database 'nowhere'", "createdb"]).await;
    refusal(address(server, right, "postgres", "sslmode=require"), &["TLS", "ssl"]).await;
    let nobody = PostgresOptions::new("postgres://examiner:wrong-pa55@127.0.0.1:9/postgres").unwrap();
    refusal(nobody, &["cannot be reached"]).await;
    let missing = PostgresOptions::new(&format!(
        "postgres://examiner:wrong-pa55@127.0.0.1:{}/postgres?sslmode=require&sslrootcert=/no/such/file",
        server.port()
    ));
    refusal(missing.unwrap(), &["/no/such/file"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_that_are_missing_old_or_new_are_left_alone() {
    let server = server_or_skip!();
    let options = PostgresOptions::new(&server.url(&server.fresh_schema())).unwrap();
    refusal(options.clone(), &["no tables", "longhaul store migrate"]).await;
    // Many at once make them once.
    let migrations = (0..4).map(|_| PostgresStore::migrate(&options));
    for migrated in futures::future::join_all(migrations).await {
        migrated.unwrap();
    }
    let store = PostgresStore::open(options.clone()).await.unwrap();
    store.append(submission(id("kept"))).await.unwrap();
    PostgresStore::migrate(&options).await.unwrap();
    assert!(store.task_state(id("kept")).await.unwrap().is_some(), "a second migration changes nothing");
    let other = bystander(&options).await;
    other.batch("UPDATE @.meta SET version = 0, oldest = 0").await.unwrap();
    refusal(options.clone(), &["earlier", "longhaul store migrate"]).await;
    other.batch("UPDATE @.meta SET version = 9, oldest = 1").await.unwrap();
    PostgresStore::open(options.clone()).await.unwrap();
    other.batch("UPDATE @.meta SET version = 9, oldest = 9").await.unwrap();
    refusal(options.clone(), &["newer", "upgrade Longhaul"]).await;
    let refused = PostgresStore::migrate(&options).await.unwrap_err().to_string();
    assert!(refused.contains("newer"), "{refused}");
}

/// For one user the server says that it is of another version: her `current_setting` is another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_too_old_is_refused() {
    let server = server_or_skip!();
    let options = fresh(server).await;
    let schema = &options.schema;
    let version = |number: u32| {
        server.sql(&format!(
            "CREATE OR REPLACE FUNCTION old_{schema}.current_setting(text) RETURNS text LANGUAGE sql AS 'SELECT ''{number}'''"
        ))
    };
    server.sql(&format!("CREATE SCHEMA old_{schema}"));
    version(130_022);
    server.sql(&format!(
        "CREATE ROLE old_{schema} SUPERUSER LOGIN PASSWORD 'old-pa55'; \
         ALTER ROLE old_{schema} SET search_path = old_{schema}, pg_catalog"
    ));
    let url = |schema: &str, into: &str| {
        format!("postgres://old_{schema}:old-pa55@127.0.0.1:{}/postgres?schema={into}", server.port())
    };
    let old = PostgresOptions::new(&url(schema, schema)).unwrap();
    refusal(old.clone(), &["server of version 13", "PostgreSQL 14 or newer"]).await;
    let empty = PostgresOptions::new(&url(schema, &server.fresh_schema())).unwrap();
    let refused = PostgresStore::migrate(&empty).await.unwrap_err().to_string();
    assert!(refused.contains("server of version 13") && !refused.contains("old-pa55"), "{refused}");
    let made = server.sql(&format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{}'", empty.schema));
    assert_eq!(made, "0", "nothing was changed");
    version(140_000);
    PostgresStore::open(old).await.unwrap();
    PostgresStore::migrate(&empty).await.unwrap();
}

/// A user who may read and not write is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_rights_is_told() {
    let server = server_or_skip!();
    let options = fresh(server).await;
    let schema = &options.schema;
    server.sql(&format!("CREATE ROLE guest_{schema} LOGIN PASSWORD 'guest-pa55'"));
    server.sql(&format!("GRANT USAGE ON SCHEMA {schema} TO guest_{schema}; GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO guest_{schema}"));
    let url =
        format!("postgres://guest_{schema}:guest-pa55@127.0.0.1:{}/postgres?schema={schema}", server.port());
    let store = PostgresStore::open(PostgresOptions::new(&url).unwrap()).await.unwrap();
    let error = store.append(submission(id("refused"))).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("may not") && !text.contains("guest-pa55"), "{text}");
    assert!(matches!(error, StoreError::Database { fault: DatabaseFault::Permanent, .. }));
}

/// One bad batch harms nobody else that is written with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_the_server_refuses_harms_no_other() {
    let server = server_or_skip!();
    let store = PostgresStore::open(fresh(server).await.lanes(1)).await.unwrap();
    let good: Vec<TaskId> = (0..20).map(|nth| id(&format!("good {nth}"))).collect();
    // Text cannot hold a zero byte there.
    let bad = id("bad");
    let (key, team) = (TaskKey::named("bad"), TeamRef::Named("a\0team".into()));
    let entry = Entry::Submitted(Box::new(Submission::root(bad, key, Order::new("worker", "x"), team)));
    let bad = store.append(Batch::one(bad, Fence::New, vec![entry]));
    let (answers, refused) =
        tokio::join!(futures::future::join_all(good.iter().map(|task| store.append(submission(*task)))), bad);
    assert!(
        matches!(refused, Err(StoreError::Database { fault: DatabaseFault::Permanent, .. })),
        "{refused:?}"
    );
    for answer in answers {
        assert_eq!(answer.unwrap(), [Seq(1)]);
    }
    assert_eq!(store.list(TaskFilter::default()).await.unwrap().len(), 20);
}
