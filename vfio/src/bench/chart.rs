//! The table as a picture: each path and its peers as multiples of the floor.

use std::path::Path;

use plotters::prelude::*;

use super::report::{Line, Report, path};

/// Height of a bar and of the gap behind a row, in pixels.
const BAR: i32 = 13;
const GAP: i32 = 9;
/// Where bars begin, and how long the longest is.
const LEFT: i32 = 300;
const LENGTH: i32 = 560;
const TOP: i32 = 56;
/// Multiples of the floor that are told apart: what is slower ends at the edge.
const MOST: f64 = 25.0;

const OURS: RGBColor = RGBColor(0x1f, 0x77, 0xb4);
const PEERS: RGBColor = RGBColor(0xb8, 0xb8, 0xb8);
const FLOOR: RGBColor = RGBColor(0xd6, 0x27, 0x28);

type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Draws the rows that have peers into a file.
pub(super) fn draw(report: &Report, file: &Path) -> Drawn {
    let lines: Vec<_> = report.lines.iter().filter(|line| !line.row.peers.of.is_empty()).collect();
    let height = TOP + lines.iter().map(|line| tall(line)).sum::<i32>() + GAP;
    let area = SVGBackend::new(file, ((LEFT + LENGTH + 230) as u32, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let text = |size: i32| ("sans-serif", size).into_font();
    area.draw(&Text::new("Time for a completion, as a multiple of the floor of the same run", (12, 12), text(17)))?;
    area.draw(&Text::new(
        "blue: this driver    grey: others, as measured elsewhere    red: the floor",
        (12, 34),
        text(12),
    ))?;
    let mut y = TOP;
    for line in lines {
        let ring = format!("{}, {} {}", path(&line.row), 1 << line.row.log, line.row.state.name());
        area.draw(&Text::new(ring, (12, y), text(12)))?;
        let peers = line.row.peers.of.iter().map(|peer| (PEERS, peer.nanoseconds / line.row.peers.floor, peer.name));
        for (colour, ratio, name) in std::iter::once((OURS, line.ratio[0], "")).chain(peers) {
            let end = LEFT + (ratio.min(MOST) / MOST * f64::from(LENGTH)) as i32;
            area.draw(&Rectangle::new([(LEFT, y), (end, y + BAR - 2)], colour.filled()))?;
            area.draw(&Text::new(format!("{ratio:.1} {name}"), (end + 5, y), text(11)))?;
            y += BAR;
        }
        y += GAP;
    }
    let floor = LEFT + (f64::from(LENGTH) / MOST) as i32;
    area.draw(&PathElement::new([(floor, TOP - 4), (floor, y - GAP)], FLOOR))?;
    area.present()?;
    Ok(())
}

/// Pixels that a row takes.
fn tall(line: &Line) -> i32 {
    BAR * (1 + line.row.peers.of.len() as i32) + GAP
}
