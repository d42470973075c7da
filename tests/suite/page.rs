//! The page in a real browser: what people see, whatever was written into a plan.
//!
//! `ORCHESTRATE_TEST_SCREENSHOTS=FOLDER` keeps pictures to look at.

use std::sync::Arc;

use orchestrate::http::Board;
use orchestrate::report::View;
use orchestrate::status::Status;
use serde_json::json;

use crate::support::browser::Browser;
use crate::support::plans;
use crate::support::project::{Project, noting};
use crate::support::web::Daemon;

fn published(view: &View) -> Arc<Board> {
    let board = plans::board();
    board.publish(view.clone(), plans::no_tasks());
    board
}

/// What a checker of accessibility would find first: names, doubled ids, table headers, contrast.
const FAULTS: &str = r#"
const faults = [];
const say = (what, at) => faults.push(what + ": " + at.outerHTML.slice(0, 120));
const name = (at) => (at.getAttribute("aria-label") || at.textContent || (at.labels && at.labels[0] && at.labels[0].textContent) || "").trim();
for (const at of document.querySelectorAll("a[href], input, [tabindex='0'], svg[role=img], section")) {
  const by = at.getAttribute("aria-labelledby");
  if (!(by ? document.getElementById(by) : name(at))) say("no name", at);
}
const ids = [...document.querySelectorAll("[id]")].map((at) => at.id);
if (new Set(ids).size !== ids.length) faults.push("doubled ids");
for (const at of document.querySelectorAll("[aria-labelledby], [aria-controls]")) {
  const id = at.getAttribute("aria-labelledby") || at.getAttribute("aria-controls");
  if (!document.getElementById(id)) say("points nowhere", at);
}
if (document.querySelectorAll("h1").length !== 1) faults.push("not one h1");
if (!document.documentElement.lang) faults.push("no language");
for (const at of document.querySelectorAll("thead th")) if (at.scope !== "col") say("no scope", at);
for (const at of document.querySelectorAll("tbody th")) if (at.scope !== "row") say("no scope", at);
const parse = (text) => text.match(/[\d.]+/g).map(Number);
const light = ([r, g, b]) => {
  const [x, y, z] = [r, g, b].map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
};
const ground = (at) => {
  for (; at; at = at.parentElement) {
    const colour = parse(getComputedStyle(at).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
const ratio = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const seen = new Set();
while (texts.nextNode()) {
  const at = texts.currentNode.parentElement;
  if (seen.has(at) || !texts.currentNode.data.trim() || ["SCRIPT", "STYLE", "title"].includes(at.tagName)) continue;
  seen.add(at);
  const style = getComputedStyle(at);
  const node = at.closest("svg .node");
  const ink = at.closest("svg") ? style.fill : style.color;
  const behind = node ? parse(getComputedStyle(node.querySelector("rect")).fill) : ground(at);
  if (ratio(parse(ink), behind) < 4.5) say("contrast " + ratio(parse(ink), behind).toFixed(2), at);
}
return faults.slice(0, 10);
"#;

const WIDE: &str = "return document.documentElement.scrollWidth > document.documentElement.clientWidth";

#[test]
fn it_reads_well_on_a_desk_and_on_a_phone_by_day_and_by_night_at_any_size() {
    let Some(browser) = Browser::start() else { return };
    let mut servers = Vec::new();
    for (name, view) in
        [("7", plans::plan(7)), ("60", plans::plan(60)), ("2000", plans::plan(2_000)), ("done", plans::done(12))]
    {
        let (server, address) = plans::serve(&published(&view));
        // Until the end: the page before is told otherwise that its stream broke.
        servers.push(server);
        for (width, height, is_phone) in [(1_440, 900, false), (390, 844, true)] {
            for scheme in ["light", "dark"] {
                browser.resize(width, height, is_phone);
                browser.prefer(scheme);
                browser.open(&format!("http://{address}/"));
                browser.wait("return document.getElementById('live').textContent === 'live'");
                let device = if is_phone { "phone" } else { "desk" };
                let case = format!("{name}-{device}-{scheme}");
                browser.picture(&case);
                assert_eq!(
                    browser.run("return document.querySelectorAll('#rows > tr').length"),
                    view.tasks.len(),
                    "{case}"
                );
                assert_eq!(
                    browser.run("return document.querySelectorAll('svg .node').length"),
                    view.tasks.len(),
                    "{case}"
                );
                assert_eq!(browser.run(FAULTS), json!([]), "{case}");
                assert_eq!(browser.run(WIDE), false, "{case}: it scrolls sideways");
                assert_eq!(browser.run("return document.querySelector('.review') !== null"), name == "done", "{case}");
                browser.run("document.getElementById('tasks').scrollIntoView()");
                browser.picture(&format!("{case}-tasks"));
                assert_eq!(browser.complaints(), Vec::<String>::new(), "{case}");
            }
        }
        browser.run("const box = document.getElementById('filter'); box.value = 'FAILED nonzero'; box.dispatchEvent(new Event('input'))");
        let shown =
            browser.run("return [...document.querySelectorAll('#rows > tr')].filter((row) => !row.hidden).length");
        let failed = view.tasks.iter().filter(|task| task.status == Status::Failed).count();
        assert_eq!(shown, failed, "{name}: the filter");
    }
}

#[test]
fn news_come_without_a_reload_and_leave_focus_scrolling_and_filter_alone() {
    let Some(browser) = Browser::start() else { return };
    let mut view = plans::plan(60);
    let board = published(&view);
    let (server, address) = plans::serve(&board);
    browser.open(&format!("http://{address}/"));
    browser.wait("return document.getElementById('live').textContent === 'live'");
    let (id, running) = (view.tasks[5].id.clone(), view.tasks[30].id.clone());
    browser.run(&format!(
        "window.mark = 1;
         document.getElementById('filter').value = '-';
         document.querySelector('.scroll').scrollLeft = 200;
         document.querySelector('#rows a[href=\"/tasks/{id}\"]').focus();"
    ));
    let is_running = |yes: bool| {
        format!("return document.querySelector('tr[data-k=\"{running}\"]').textContent.includes('running') === {yes}")
    };
    browser.wait(&is_running(true));
    view.tasks[30].status = Status::Completed;
    view.tasks[30].seconds = Some(777);
    // The row that has the focus is exchanged too.
    view.tasks[5].title = Some("Another title".to_owned());
    view.tasks.remove(59);
    view.tasks.swap(10, 11);
    board.publish(view.clone(), plans::no_tasks());
    browser.wait(&is_running(false));
    browser.wait("return document.querySelectorAll('#rows > tr').length === 59");
    let order = browser.run("return [...document.querySelectorAll('#rows > tr')].map((row) => row.dataset.k)");
    let wanted: Vec<&str> = view.tasks.iter().map(|task| task.id.as_str()).collect();
    assert_eq!(order, json!(wanted));
    assert_eq!(browser.run("return document.querySelectorAll('svg .node').length"), 59);
    assert_eq!(browser.run("return window.mark"), 1, "no reload");
    assert_eq!(browser.run("return document.activeElement.getAttribute('href')"), format!("/tasks/{id}"));
    assert_eq!(browser.run("return document.querySelector('.scroll').scrollLeft"), 200);
    assert_eq!(browser.run("return document.getElementById('filter').value"), "-");
    assert_eq!(browser.complaints(), Vec::<String>::new());
    drop(server);
    browser.wait("return document.getElementById('live').textContent.includes('lost')");
}

#[test]
fn what_others_wrote_does_no_harm() {
    let Some(browser) = Browser::start() else { return };
    let mut view = plans::plan(7);
    view.warnings = vec![plans::HOSTILE.to_owned()];
    view.project = plans::HOSTILE.to_owned();
    view.engine_unavailable = Some(plans::HOSTILE.to_owned());
    let board = published(&view);
    let (_server, address) = plans::serve(&board);
    for path in ["/", "/tasks/api-client-1", "/tasks/%3Cimg%20src=x%20onerror=window.hurt=1%3E"] {
        browser.open(&format!("http://{address}{path}"));
        browser.wait("return document.readyState === 'complete'");
        board.publish(plans::plan(7), plans::no_tasks());
        board.publish(view.clone(), plans::no_tasks());
        browser.wait("return document.querySelectorAll('img').length === 0");
        assert_eq!(browser.run("return window.hurt === undefined"), true, "{path}");
        assert_eq!(browser.run(WIDE), false, "{path}");
        // A page that is not there is an error of its own.
        let complaints: Vec<String> = browser.complaints().into_iter().filter(|text| !text.contains("404")).collect();
        assert_eq!(complaints, Vec::<String>::new(), "{path}");
        browser.picture(&format!("hostile-{}", path.len()));
    }
    // Even a script that came through would not run.
    browser.open(&format!("http://{address}/"));
    browser.run(
        "const at = document.createElement('script'); at.textContent = 'window.hurt = 1'; document.body.append(at)",
    );
    assert_eq!(browser.run("return window.hurt === undefined"), true);
    assert!(browser.complaints().iter().any(|text| text.contains("Content Security Policy")));
}

#[test]
fn a_container_that_exits_is_seen_without_a_reload_with_the_end_of_its_output() {
    let Some(project) = Project::on_engine() else { return };
    let Some(browser) = Browser::start() else { return };
    project.plan(json!([
        { "id": "first", "command": noting("echo '<script>window.hurt = 1</script> so far'; until [ -e /ran/go ]; do sleep 0.1; done; echo at last") },
        { "id": "second", "dependencies": ["first"], "command": noting("true") },
    ]));
    let daemon = Daemon::start(&project, &[]);
    browser.open(&format!("http://{}/", daemon.address));
    let stands = |id: &str, status: &str| {
        format!(
            "const row = document.querySelector('tr[data-k={id}]'); return row !== null && row.className === 's-{status}'"
        )
    };
    browser.wait(&stands("first", "running"));
    browser.run("window.mark = 1");
    let shows = |text: &str| {
        format!(
            "const log = document.querySelector('pre.log'); return log !== null && log.textContent.includes('{text}')"
        )
    };
    let other = Browser::start().expect("the other one started");
    other.open(&format!("http://{}/tasks/first", daemon.address));
    other.wait(&shows("so far"));
    std::fs::write(project.ran().join("go"), "").expect("writes");
    browser.wait(&stands("first", "completed"));
    browser.wait(&stands("second", "completed"));
    browser.wait("return document.querySelector('.review') !== null");
    assert_eq!(browser.run("return window.mark"), 1, "no reload");
    other.wait(&shows("at last"));
    other.picture("task-log");
    for seen in [&browser, &other] {
        assert_eq!(seen.run("return window.hurt === undefined"), true);
        assert_eq!(seen.complaints(), Vec::<String>::new());
    }
}
