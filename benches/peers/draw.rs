//! Drawings of rows.

use std::path::Path;

use plotters::prelude::*;

use crate::report::Row;

const WIDTH: u32 = 760;
const ROW: u32 = 26;

/// One bar for each who has a figure, the spread as a line over it.
pub(crate) fn bars(path: &Path, title: &str, rows: &[&Row]) {
    if let Err(error) = draw(path, title, rows) {
        crate::say(&format!("cannot draw {}: {error}", path.display()));
    }
}

fn draw(path: &Path, title: &str, rows: &[&Row]) -> Result<(), Box<dyn std::error::Error>> {
    let rows: Vec<(&&Row, f64)> = rows.iter().filter_map(|row| Some((row, row.median?))).collect();
    let count = u32::try_from(rows.len())?;
    let most = rows.iter().map(|(row, median)| row.high.unwrap_or(*median)).fold(0.0, f64::max);
    let root = SVGBackend::new(path, (WIDTH, 60 + ROW * count)).into_drawing_area();
    root.fill(&WHITE)?;
    root.draw(&Text::new(title.to_owned(), (10, 10), ("sans-serif", 15).into_font()))?;
    let scale = f64::from(WIDTH - 320) / most.max(f64::MIN_POSITIVE);
    for (at, (row, median)) in rows.iter().enumerate() {
        let top = 40 + i32::try_from(ROW)? * i32::try_from(at)?;
        #[expect(clippy::cast_possible_truncation, reason = "a place in a drawing")]
        let x = |value: f64| 220 + (value * scale).round() as i32;
        let ours = row.who == "orchestrate";
        let colour = if ours { RGBColor(29, 78, 216) } else { RGBColor(156, 163, 175) };
        let small = ("sans-serif", 13).into_font();
        root.draw(&Text::new(row.who.clone(), (10, top), small.clone()))?;
        root.draw(&Rectangle::new([(220, top), (x(*median), top + 16)], colour.filled()))?;
        if let Some((low, high)) = row.low.zip(row.high) {
            root.draw(&PathElement::new([(x(low), top + 8), (x(high), top + 8)], BLACK))?;
        }
        let end = x(row.high.unwrap_or(*median).max(*median)) + 6;
        root.draw(&Text::new(format!("{median:.3} {}", row.unit), (end, top), small))?;
    }
    root.present()?;
    Ok(())
}
