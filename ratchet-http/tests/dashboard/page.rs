//! A page of the browser: sends the input of a user, and reads what the page shows.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ratchet_core::time::monotonic;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::browser::Browser;

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(25);

/// The page of a browser.
pub(crate) struct Page(Browser);

impl Page {
    pub(crate) async fn open() -> Result<Self> {
        let page = Self(Browser::start().await?);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.0.call(&format!("{domain}.enable"), json!({})).await?;
        }
        // Let fields get focus events, as if the window had the focus.
        let focused = json!({ "enabled": true });
        page.0
            .call("Emulation.setFocusEmulationEnabled", focused)
            .await?;
        page.size(1280, 900, false).await?;
        page.scheme("light").await?;
        Ok(page)
    }

    /// Loads an address.
    pub(crate) async fn load(&self, url: &str) -> Result<()> {
        self.0
            .call("Page.navigate", json!({ "url": "about:blank" }))
            .await?;
        let answer = self.0.call("Page.navigate", json!({ "url": url })).await?;
        if let Some(problem) = answer["errorText"].as_str() {
            bail!("{url}: {problem}");
        }
        self.until("document.querySelector('main h1')").await
    }

    /// Evaluates a JavaScript expression.
    pub(crate) async fn eval(&self, expression: &str) -> Result<Value> {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.0.call("Runtime.evaluate", params).await?;
        if answer["exceptionDetails"].is_object() {
            bail!("{expression}: {}", answer["exceptionDetails"]);
        }
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until an expression is true.
    pub(crate) async fn until(&self, expression: &str) -> Result<()> {
        let asked = format!("Boolean({expression})");
        let seen = timeout(PATIENCE, async {
            loop {
                // While a page loads, there may be no context to evaluate in.
                if matches!(self.eval(&asked).await, Ok(Value::Bool(true))) {
                    return;
                }
                sleep(LOOK_AGAIN).await;
            }
        });
        match seen.await {
            Ok(()) => Ok(()),
            Err(_) => Err(anyhow!(
                "timed out waiting until this is true: {expression}\n{}",
                self.describe().await
            )),
        }
    }

    /// Waits until the page contains this text.
    pub(crate) async fn until_text(&self, text: &str) -> Result<()> {
        self.until(&format!(
            "document.body.textContent.includes({})",
            json!(text)
        ))
        .await
    }

    /// Clicks an element with the mouse, if no other element covers it.
    pub(crate) async fn click(&self, selector: &str) -> Result<()> {
        let find = format!(
            "(() => {{ const one = document.querySelector({selector}); if (!one) return null;
              one.scrollIntoView({{ block: 'center', behavior: 'instant' }});
              const box = one.getBoundingClientRect();
              const [x, y] = [box.x + Math.min(box.width / 2, 40), box.y + box.height / 2];
              const hit = document.elementFromPoint(x, y);
              return hit && (one.contains(hit) || hit.contains(one)) ? [x, y] : null; }})()",
            selector = json!(selector)
        );
        self.until(&format!("({find}) !== null"))
            .await
            .with_context(|| selector.to_owned())?;
        let place = self.eval(&find).await?;
        for (kind, buttons) in [("mousePressed", 1), ("mouseReleased", 0)] {
            let params = json!({
                "type": kind, "x": place[0], "y": place[1], "button": "left", "buttons": buttons, "clickCount": 1,
            });
            self.0.call("Input.dispatchMouseEvent", params).await?;
        }
        Ok(())
    }

    /// Clicks the confirming button of the open dialog.
    pub(crate) async fn confirm(&self) -> Result<()> {
        self.click("dialog[open] [data-yes]").await?;
        self.until("!document.querySelector('dialog[open]')").await
    }

    /// Presses a key.
    pub(crate) async fn key(&self, key: &str) -> Result<()> {
        self.key_with(key, 0).await
    }

    /// Presses a key with modifiers; 8 is Shift.
    pub(crate) async fn key_with(&self, key: &str, modifiers: u32) -> Result<()> {
        let (code, text) = match key {
            "Enter" => (13, Some("\r")),
            "Tab" => (9, None),
            "Escape" => (27, None),
            " " => (32, Some(" ")),
            "ArrowLeft" => (37, None),
            one => (
                one.to_ascii_uppercase().bytes().next().map_or(0, u32::from),
                Some(one),
            ),
        };
        let mut down = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers });
        if let Some(text) = text {
            down["text"] = json!(text);
        }
        self.0.call("Input.dispatchKeyEvent", down).await?;
        let up = json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code, "modifiers": modifiers });
        self.0.call("Input.dispatchKeyEvent", up).await?;
        Ok(())
    }

    /// Types a text into the focused element.
    pub(crate) async fn write(&self, text: &str) -> Result<()> {
        self.0
            .call("Input.insertText", json!({ "text": text }))
            .await?;
        Ok(())
    }

    /// Sets the size of the window.
    pub(crate) async fn size(&self, width: u32, height: u32, phone: bool) -> Result<()> {
        let params =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": phone });
        self.0
            .call("Emulation.setDeviceMetricsOverride", params)
            .await?;
        Ok(())
    }

    /// Sets the system's theme: `light` or `dark`.
    pub(crate) async fn scheme(&self, value: &str) -> Result<()> {
        let features = json!([
            { "name": "prefers-color-scheme", "value": value },
            { "name": "prefers-reduced-motion", "value": "reduce" },
        ]);
        self.0
            .call(
                "Emulation.setEmulatedMedia",
                json!({ "features": features }),
            )
            .await?;
        Ok(())
    }

    /// Waits for a few live updates.
    pub(crate) async fn settle(&self) -> Result<()> {
        let ticks = "document.documentElement.ratchet.frames";
        let seen = self.eval(ticks).await?.as_u64().unwrap_or_default();
        self.until(&format!("{ticks} >= {}", seen + 3)).await
    }

    /// Writes a screenshot of the window.
    pub(crate) async fn picture(&self, file: &Path) -> Result<()> {
        let answer = self
            .0
            .call("Page.captureScreenshot", json!({ "format": "png" }))
            .await?;
        let data = answer["data"].as_str().context("no picture")?;
        std::fs::write(file, STANDARD.decode(data)?)?;
        Ok(())
    }

    /// Returns the errors, policy violations and exceptions of the console. Responses with an error
    /// status are left out, since some cases expect them.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let exceptions = self.0.told("Runtime.exceptionThrown");
        let mut all: Vec<String> = exceptions.iter().map(ToString::to_string).collect();
        for entry in self.0.told("Log.entryAdded") {
            let entry = &entry["entry"];
            let is_answer = entry["source"] == "network";
            if (entry["level"] == "error" || entry["level"] == "warning") && !is_answer {
                all.push(entry.to_string());
            }
        }
        for call in self.0.told("Runtime.consoleAPICalled") {
            if ["error", "warning", "assert"]
                .iter()
                .any(|kind| call["type"] == *kind)
            {
                all.push(call.to_string());
            }
        }
        all
    }

    /// Returns the URLs of all requests.
    pub(crate) fn requests(&self) -> Vec<String> {
        let sent = self.0.told("Network.requestWillBeSent");
        let urls = sent
            .iter()
            .filter_map(|it| Some(it["request"]["url"].as_str()?.to_owned()));
        urls.collect()
    }

    /// Clears the recorded errors and requests.
    pub(crate) fn forget(&self) {
        self.0.forget();
    }

    /// Measures how long the page takes to respond.
    pub(crate) async fn answers_in(&self) -> Result<Duration> {
        let asked = monotonic();
        self.eval("1").await?;
        Ok(asked.elapsed())
    }

    /// Returns the address and the text of the page, for the message of a failure.
    pub(crate) async fn describe(&self) -> String {
        let text = self
            .eval("location.href + '\\n' + document.body.innerText.slice(0, 3000)")
            .await;
        let text = text.ok().and_then(|text| Some(text.as_str()?.to_owned()));
        format!(
            "{}\ncomplaints: {:#?}",
            text.unwrap_or_default(),
            self.complaints()
        )
    }
}
