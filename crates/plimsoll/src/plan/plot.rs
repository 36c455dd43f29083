//! A plan as a picture: what ran when in the last pass, and what lies where.
//!
//! Plain SVG without scripts or fonts of its own, in colors that can be read on light and dark ground.

use std::fmt::{self, Write};
use std::time::Duration;

use plimsoll_device::ByteCount;
use plimsoll_sim::{Span, WorkKind};

use super::simulation::{Setting, Simulated};
use super::why::milliseconds;

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 20.0;
const LANE: f64 = 34.0;

const STYLE: &str = "\
.ground{fill:#fff}.text{fill:#1f2328;font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:13px}\
.small{font-size:11px}.title{font-size:16px}.line{stroke:#8c959f;fill:none}.copy{fill:#1a7fd4}.compute{fill:#8b949e}\
.odd{fill:#a5adb6}.merge{fill:#8250df}.stall{fill:#e5532d}\
.resident{fill:#13807a}.odd-resident{fill:#22a39b}.host{fill:#1a7fd4}.ring{fill:#bf8700}\
.scratch{fill:#8250df}.adapters{fill:#cf4f9a}.activations{fill:#6e7781}.free{fill:#d0d7de}\
@media(prefers-color-scheme:dark){.ground{fill:#0d1117}.text{fill:#e6edf3}.free{fill:#30363d}}";

/// The picture, complete.
pub(super) fn render(setting: &Setting<'_>, simulated: &Simulated) -> String {
    let mut svg = String::new();
    let drawn = Canvas { svg: &mut svg, setting, simulated }.draw();
    drawn.expect("strings take all text");
    svg
}

struct Canvas<'a> {
    svg: &'a mut String,
    setting: &'a Setting<'a>,
    simulated: &'a Simulated,
}

impl Canvas<'_> {
    fn draw(mut self) -> fmt::Result {
        let height = 396.0;
        writeln!(
            self.svg,
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">"#
        )?;
        writeln!(self.svg, "<style>{STYLE}</style>")?;
        writeln!(self.svg, r#"<rect class="ground" width="{WIDTH}" height="{height}"/>"#)?;
        let simulated = self.simulated;
        let title = format!("{}: {}", self.setting.workload.name, self.setting.workload.about);
        self.text(LEFT, 28.0, "title", &title)?;
        let facts = format!(
            "{} with {} streams: a step of {}, the bound is {}, stalls of {}; {} moved in {} copies",
            simulated.policy,
            self.setting.offload_streams,
            milliseconds(simulated.step_seconds),
            milliseconds(simulated.bound_seconds),
            milliseconds(simulated.stall_seconds()),
            simulated.moved_bytes,
            simulated.copy_count
        );
        self.text(LEFT, 48.0, "", &facts)?;
        self.timeline(70.0)?;
        self.memory(240.0)?;
        writeln!(self.svg, "</svg>")
    }

    fn timeline(&mut self, top: f64) -> fmt::Result {
        let [start, end] = self.simulated.pass;
        let scale = Scale::new((end - start).as_secs_f64());
        let at = |time: Duration| scale.x(time.saturating_sub(start).min(end - start).as_secs_f64());
        self.text(8.0, top + 22.0, "", "copies")?;
        self.text(8.0, top + LANE + 28.0, "", "compute")?;
        let of_kind = |kind: WorkKind| self.simulated.spans.iter().filter(move |span| span.kind == kind);
        let copies: Vec<_> = of_kind(WorkKind::Copy).map(|span| Mark::of(span, at)).collect();
        let merges: Vec<_> = of_kind(WorkKind::Merge).map(|span| Mark::of(span, at)).collect();
        let [even, odd] = [0, 1].map(|rest| {
            let spans = of_kind(WorkKind::Compute).enumerate().filter(move |(idx, _)| idx % 2 == rest);
            spans.map(|(_, span)| Mark::of(span, at)).collect::<Vec<_>>()
        });
        let stalls = self.simulated.stalls.iter().map(|stall| Mark {
            from: at(stall.start),
            to: at(stall.end),
            title: format!("stall before {}, {}", stall.before, milliseconds((stall.end - stall.start).as_secs_f64())),
        });
        let stalls: Vec<_> = stalls.collect();
        self.marks("copy", top, LANE - 6.0, &copies)?;
        let second = top + LANE + 6.0;
        self.marks("compute", second, LANE - 6.0, &even)?;
        self.marks("odd", second, LANE - 6.0, &odd)?;
        self.marks("merge", second, LANE - 6.0, &merges)?;
        self.marks("stall", second, LANE - 6.0, &stalls)?;
        self.axis(second + LANE, &scale)?;
        let kinds = [("copy", "copy"), ("compute", "compute"), ("stall", "stall"), ("merge", "merge")];
        let shown = if merges.is_empty() { &kinds[..3] } else { &kinds };
        self.legend(second + LANE + 44.0, shown)
    }

    fn axis(&mut self, top: f64, scale: &Scale) -> fmt::Result {
        writeln!(self.svg, r#"<path class="line" d="M{LEFT} {top:.1}H{:.1}"/>"#, WIDTH - RIGHT)?;
        for part in 0..=4 {
            let seconds = scale.whole * f64::from(part) / 4.0;
            let x = scale.x(seconds);
            writeln!(self.svg, r#"<path class="line" d="M{x:.1} {top:.1}v5"/>"#)?;
            let anchor = if part == 4 { r#" text-anchor="end""# } else { "" };
            let y = top + 18.0;
            writeln!(
                self.svg,
                r#"<text class="text small"{anchor} x="{x:.1}" y="{y:.1}">{}</text>"#,
                milliseconds(seconds)
            )?;
        }
        Ok(())
    }

    fn memory(&mut self, top: f64) -> fmt::Result {
        let simulated = self.simulated;
        let plan = &simulated.plan;
        let budget = self.setting.card.budget.unwrap_or(self.setting.card.memory);
        let scale = Scale::new(budget.0 as f64);
        self.text(8.0, top + 22.0, "", "device")?;
        self.text(8.0, top + LANE + 34.0, "", "weights")?;
        let mut rows = [Vec::new(), Vec::new()];
        let mut end = 0;
        let units = simulated.planner.units();
        for (place, (unit, _)) in units.iter().zip(&plan.resident).filter(|(_, resident)| **resident).enumerate() {
            rows[place % 2].push(Mark::bytes(&unit.name, &mut end, unit.bytes, &scale));
        }
        let [even, odd] = rows;
        self.marks("resident", top, LANE - 6.0, &even)?;
        self.marks("odd-resident", top, LANE - 6.0, &odd)?;
        let reserves = [
            ("ring", plan.ring_bytes),
            ("scratch", plan.transient_bytes + plan.staging_bytes),
            ("adapters", simulated.adapter_bytes),
            ("activations", simulated.activation_bytes),
            ("free", budget.saturating_sub(simulated.total_bytes())),
        ];
        for (class, bytes) in reserves {
            let mark = Mark::bytes(class, &mut end, bytes, &scale);
            self.marks(class, top, LANE - 6.0, &[mark])?;
        }
        let weights = plan.resident_bytes + plan.streamed_bytes;
        let scale = Scale::new(weights.0 as f64);
        for (class, is_resident) in [("resident", true), ("host", false)] {
            let runs = runs(simulated, is_resident, &scale);
            self.marks(class, top + LANE + 12.0, LANE - 6.0, &runs)?;
        }
        let y = top + 2.0 * LANE + 22.0;
        self.text(LEFT, y, "small", &format!("device: the budget of {budget}, residents in visiting order first"))?;
        let below = format!("weights: all {weights} in visiting order, on the device or on the host");
        self.text(LEFT, y + 16.0, "small", &below)?;
        let mut kinds = vec![("resident", "resident"), ("host", "streamed from the host")];
        kinds.extend(reserves.iter().filter(|(_, bytes)| *bytes > ByteCount::ZERO).map(|(class, _)| (*class, *class)));
        self.legend(y + 42.0, &kinds)
    }

    /// One class of rectangles in a lane; those too narrow to be seen are left out, and those too narrow to be pointed at
    /// say nothing.
    fn marks(&mut self, class: &str, top: f64, height: f64, marks: &[Mark]) -> fmt::Result {
        const VISIBLE: f64 = 0.1;
        const POINTED_AT: f64 = 0.5;
        let mut visible = marks.iter().filter(|mark| mark.to - mark.from >= VISIBLE).peekable();
        if visible.peek().is_none() {
            return Ok(());
        }
        writeln!(self.svg, r#"<g class="{class}" transform="translate(0 {top:.1})">"#)?;
        for Mark { from, to, title } in visible {
            let width = to - from;
            let outline = format!("M{from:.2} 0h{width:.2}v{height}h-{width:.2}z");
            match width >= POINTED_AT {
                true => writeln!(self.svg, r#"<path d="{outline}"><title>{}</title></path>"#, xml(title))?,
                false => writeln!(self.svg, r#"<path d="{outline}"/>"#)?,
            }
        }
        writeln!(self.svg, "</g>")
    }

    fn legend(&mut self, y: f64, kinds: &[(&str, &str)]) -> fmt::Result {
        let mut x = LEFT;
        for (class, name) in kinds {
            writeln!(self.svg, r#"<rect class="{class}" x="{x:.0}" y="{:.0}" width="12" height="12"/>"#, y - 10.0)?;
            self.text(x + 18.0, y, "small", name)?;
            x += 44.0 + 7.0 * name.len() as f64;
        }
        Ok(())
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) -> fmt::Result {
        writeln!(self.svg, r#"<text class="text {class}" x="{x:.1}" y="{y:.1}">{}</text>"#, xml(text))
    }
}

/// From seconds or bytes to the place on the picture.
struct Scale {
    whole: f64,
}

impl Scale {
    fn new(whole: f64) -> Self {
        Self { whole: if whole > 0.0 { whole } else { 1.0 } }
    }

    fn x(&self, part: f64) -> f64 {
        LEFT + (part / self.whole) * (WIDTH - LEFT - RIGHT)
    }
}

/// A rectangle and what it says when pointed at.
struct Mark {
    from: f64,
    to: f64,
    title: String,
}

impl Mark {
    fn of(span: &Span, at: impl Fn(Duration) -> f64) -> Self {
        let took = milliseconds((span.end - span.start).as_secs_f64());
        Self { from: at(span.start), to: at(span.end), title: format!("{}, {took}", span.name) }
    }

    /// Bytes behind those before, up to `end`.
    fn bytes(name: &str, end: &mut u64, size: ByteCount, scale: &Scale) -> Self {
        let from = scale.x(*end as f64);
        *end += size.0;
        Self { from, to: scale.x(*end as f64), title: format!("{name}, {size}") }
    }
}

/// Neighbours in visiting order of one tier, each run as one mark.
fn runs(simulated: &Simulated, is_resident: bool, scale: &Scale) -> Vec<Mark> {
    let units: Vec<_> = simulated.planner.units().iter().zip(&simulated.plan.resident).collect();
    let (mut marks, mut end) = (Vec::new(), 0);
    for run in units.chunk_by(|(_, before), (_, after)| before == after) {
        let size: ByteCount = run.iter().map(|(unit, _)| unit.bytes).sum();
        let (first, last) = (&run[0].0.name, &run[run.len() - 1].0.name);
        let name = if run.len() == 1 { first.clone() } else { format!("{first} to {last}") };
        let mark = Mark::bytes(&name, &mut end, size, scale);
        if *run[0].1 == is_resident {
            marks.push(mark);
        }
    }
    marks
}

/// Text as XML takes it: marked characters escaped, and those that it can't hold replaced.
fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ if character.is_control() => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(xml("a<b> & \"c\"\u{0}\u{ffff}ä"), "a&lt;b&gt; &amp; &quot;c&quot;\u{fffd}\u{fffd}ä");
    }
}
