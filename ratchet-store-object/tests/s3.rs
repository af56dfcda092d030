//! The conformance suite on a service with the API of Amazon S3.

mod service;

use std::process::ExitCode;
use std::sync::Arc;

use object_store::aws::AmazonS3Builder;
use ratchet_conformance::TestServer;
use ratchet_store_object::object_store;

const SERVER: TestServer = TestServer::new("object-s3", "RATCHET_TEST_OBJECT_S3_URL");

fn main() -> ExitCode {
    service::run(SERVER, "object-s3", |endpoint, bucket| {
        let builder = AmazonS3Builder::new()
            .with_endpoint(endpoint)
            .with_allow_http(true)
            .with_region("us-east-1")
            .with_bucket_name(bucket)
            .with_access_key_id("test")
            .with_secret_access_key("test")
            .with_retry(service::no_repeats());
        Ok(Arc::new(builder.build()?))
    })
}
