// Creates a container in an Azurite, with the account that every Azurite has. Its key is public.
// Arguments: the URL of the service and the name of the container.
import crypto from "node:crypto";

const [service, container] = process.argv.slice(2);
const account = "devstoreaccount1";
const key =
  "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const date = new Date().toUTCString();
const version = "2021-12-02";
const signed =
  `PUT${"\n".repeat(12)}x-ms-date:${date}\nx-ms-version:${version}\n` +
  `/${account}/${account}/${container}\nrestype:container`;
const hmac = crypto.createHmac("sha256", Buffer.from(key, "base64"));
const signature = hmac.update(signed, "utf8").digest("base64");
const answer = await fetch(`${service}/${account}/${container}?restype=container`, {
  method: "PUT",
  headers: {
    "x-ms-date": date,
    "x-ms-version": version,
    authorization: `SharedKey ${account}:${signature}`,
  },
});
// 409: the container exists.
if (!answer.ok && answer.status !== 409) {
  throw new Error(`${answer.status}: ${await answer.text()}`);
}
