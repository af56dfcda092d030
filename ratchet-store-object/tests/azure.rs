//! The conformance suite on a service with the API of Azure Blob Storage.

mod service;

use std::process::ExitCode;
use std::sync::Arc;

use object_store::azure::MicrosoftAzureBuilder;
use ratchet_conformance::TestServer;
use ratchet_store_object::object_store;

const SERVER: TestServer = TestServer::new("object-azure", "RATCHET_TEST_OBJECT_AZURE_URL");
/// The account of the emulator, whose key is public.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

fn main() -> ExitCode {
    service::run(SERVER, "object-azure", |endpoint, container| {
        let builder = MicrosoftAzureBuilder::new()
            .with_endpoint(format!("{endpoint}/{ACCOUNT}"))
            .with_allow_http(true)
            .with_account(ACCOUNT)
            .with_access_key(KEY)
            .with_container_name(container)
            .with_retry(service::no_repeats());
        Ok(Arc::new(builder.build()?))
    })
}
