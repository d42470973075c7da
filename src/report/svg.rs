//! The plan drawn as SVG: for the page, and as a document of its own. Pure.

use std::fmt::Write as _;
use std::time::Duration;

use maud::{Markup, PreEscaped, html};

use super::layout::{Edge, Layout, Node, layout};
use super::view::{TaskView, View};
use super::{escape, time};

/// How statuses look; the page has the same rules.
pub const STYLE: &str = include_str!("graph.css");

/// Characters of an id that fit a box.
const ID_FITS: usize = 21;

/// A document of its own, with its style, light and dark.
pub fn document(view: &View) -> String {
    let layout = layout(view);
    let (width, height) = (layout.width.max(1.0), layout.height.max(1.0));
    let markup = html! {
        svg xmlns="http://www.w3.org/2000/svg" class="dag" role="img" aria-label=(label(view, &layout))
            viewBox=(format!("0 0 {width:.0} {height:.0}")) width=(format!("{width:.0}")) height=(format!("{height:.0}")) {
            style { (PreEscaped(STYLE)) }
            rect class="ground" width="100%" height="100%" {}
            (drawing(view, &layout, None))
        }
    };
    markup.into_string()
}

/// The picture for the page, whose style it takes. `href` makes a task's link from its id.
pub fn inline(view: &View, href: &dyn Fn(&str) -> String) -> Markup {
    let layout = layout(view);
    let (width, height) = (layout.width.max(1.0), layout.height.max(1.0));
    html! {
        svg class="dag" role="img" aria-label=(label(view, &layout))
            viewBox=(format!("0 0 {width:.0} {height:.0}")) width=(format!("{width:.0}")) height=(format!("{height:.0}")) {
            (drawing(view, &layout, Some(href)))
        }
    }
}

/// The critical path in words: `a → b → c`, at most so many names; empty where there is nothing to tell.
pub fn critical_path(view: &View, names: usize) -> String {
    let path = layout(view).critical;
    if path.len() < 2 {
        return String::new();
    }
    let shown: Vec<&str> = path.iter().take(names).map(|&task| view.tasks[task].id.as_str()).collect();
    let more = path.len() - shown.len();
    let rest = if more > 0 { format!(" → … {more} more") } else { String::new() };
    let known: u64 = path.iter().filter_map(|&task| view.tasks[task].seconds).sum();
    let took = if known > 0 { format!(" ({} so far)", time::age(Duration::from_secs(known))) } else { String::new() };
    format!("{}{rest}{took}", shown.join(" → "))
}

fn label(view: &View, layout: &Layout) -> String {
    format!("Dependencies in {} layers. {}.", layout.layers, view.summary.sentence())
}

fn drawing(view: &View, layout: &Layout, href: Option<&dyn Fn(&str) -> String>) -> Markup {
    let mut on_path = vec![false; layout.nodes.len()];
    for &task in &layout.critical {
        // One task is no path.
        on_path[task] = layout.critical.len() > 1;
    }
    html! {
        g class="edges" {
            @for edge in layout.edges.iter().filter(|edge| !edge.critical) { (line(edge)) }
            @for edge in layout.edges.iter().filter(|edge| edge.critical) { (line(edge)) }
        }
        @for ((task, node), critical) in view.tasks.iter().zip(&layout.nodes).zip(on_path) {
            @let class = class(task, critical, layout.compact);
            g class=(class) data-k=(format!("n-{}", task.id)) {
                title { (hint(task)) }
                @if layout.compact {
                    (shape(node, 2.0))
                } @else if let Some(href) = href {
                    // The table has the same links; with these too a keyboard would pass every task twice.
                    a href=(href(&task.id)) tabindex="-1" { (boxed(task, node)) }
                } @else {
                    (boxed(task, node))
                }
            }
        }
    }
}

fn class(task: &TaskView, critical: bool, compact: bool) -> String {
    let mut class = format!("node s-{}", task.status);
    if task.stale {
        class.push_str(" stale");
    }
    if compact {
        class.push_str(" small");
    }
    if critical {
        class.push_str(" critical");
    }
    class
}

fn shape(node: &Node, round: f64) -> Markup {
    html! {
        rect x=(format!("{:.1}", node.x)) y=(format!("{:.1}", node.y)) width=(node.width) height=(node.height) rx=(round) {}
    }
}

fn boxed(task: &TaskView, node: &Node) -> Markup {
    let (x, y) = (node.x + 10.0, node.y);
    html! {
        (shape(node, 6.0))
        text class="id" x=(format!("{x:.1}")) y=(format!("{:.1}", y + 18.0)) { (cut(&task.id, ID_FITS)) }
        text class="what" x=(format!("{x:.1}")) y=(format!("{:.1}", y + 35.0)) { (what(task)) }
    }
}

/// Status and time: `running 5m 12s, stale`.
fn what(task: &TaskView) -> String {
    let mut what = task.status.to_string();
    if let Some(seconds) = task.seconds {
        what = format!("{what} {}", time::age(Duration::from_secs(seconds)));
    }
    if task.stale {
        what.push_str(", stale");
    }
    what
}

fn hint(task: &TaskView) -> String {
    let mut hint = format!("{}: {}", task.id, what(task));
    for more in [&task.title, &task.message].into_iter().flatten() {
        write!(hint, " — {}", cut(&escape::line(more), 200)).expect("BUG: writing to a string cannot fail");
    }
    hint
}

/// At most so many characters, the last one `…` where some are missing.
pub fn cut(text: &str, most: usize) -> String {
    if text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// Straight where it passes a layer, curved between layers.
fn line(edge: &Edge) -> Markup {
    let mut path = String::new();
    let mut put = |piece: std::fmt::Arguments<'_>| path.write_fmt(piece).expect("BUG: writing to a string cannot fail");
    let Some((&(x, y), rest)) = edge.points.split_first() else { return html! {} };
    put(format_args!("M{x:.1} {y:.1}"));
    let (mut from_x, mut from_y) = (x, y);
    for &(x, y) in rest {
        let middle = f64::midpoint(from_x, x);
        if (y - from_y).abs() < 0.1 {
            put(format_args!("H{x:.1}"));
        } else {
            put(format_args!("C{middle:.1} {from_y:.1} {middle:.1} {y:.1} {x:.1} {y:.1}"));
        }
        (from_x, from_y) = (x, y);
    }
    html! { path class=(if edge.critical { "edge critical" } else { "edge" }) d=(path) {} }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::layout::tests::view;

    #[test]
    fn what_others_wrote_stays_text() {
        let mut view = view(&[("a", &[], None), ("b", &["a"], None)]);
        view.tasks[0].title = Some("</title><script>alert(1)</script>\u{202e}".to_owned());
        view.tasks[1].message = Some("&\"'<".to_owned());
        let svg = document(&view);
        assert!(!svg.contains("<script"), "{svg}");
        assert!(svg.contains("&lt;script&gt;") && svg.contains("\\u{202e}"), "{svg}");
        assert!(svg.contains("xmlns=\"http://www.w3.org/2000/svg\"") && !svg.contains("href"), "{svg}");
    }

    #[test]
    fn long_ids_are_cut_and_the_critical_path_is_told() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("äbcd", 3), "äb…");
        let view = view(&[("a", &[], Some(60)), ("b", &["a"], None), ("c", &["b"], None)]);
        assert_eq!(critical_path(&view, 2), "a → b → … 1 more (1m so far)");
        let svg = document(&view);
        assert_eq!(svg.matches("edge critical").count(), 2);
    }
}
