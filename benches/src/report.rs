//! Tables of medians, bests and ratios, and how noisy the runs were.

/// The figures of one side.
pub(crate) struct Row {
    /// Who was measured.
    pub(crate) who: String,
    /// One figure a run; more is better, or less, as the table says.
    pub(crate) figures: Vec<f64>,
}

/// Says which figure is the better one.
#[derive(Clone, Copy)]
pub(crate) enum Better {
    /// A rate.
    More,
    /// A cost.
    Less,
}

/// Prints a table whose first row is compared with all others.
pub(crate) fn table(title: &str, unit: &str, better: Better, rows: &[Row]) {
    println!(
        "\n{title} ({unit}; {})",
        match better {
            Better::More => "more is better",
            Better::Less => "less is better",
        }
    );
    println!("{:<28} {:>12} {:>12} {:>8} {:>8}", "", "median", "best", "noise", "ratio");
    let first = rows.first().map_or(0.0, |row| median(&row.figures));
    for row in rows {
        let middle = median(&row.figures);
        let best = row.figures.iter().copied().fold(f64::NAN, |best, figure| match better {
            Better::More => best.max(figure),
            Better::Less => best.min(figure),
        });
        let ratio = match better {
            Better::More => first / middle,
            Better::Less => middle / first,
        };
        let noise = spread(&row.figures) * 100.0;
        println!("{:<28} {middle:>12.2} {best:>12.2} {noise:>7.0}% {ratio:>8.2}", row.who);
    }
    println!("ratio: how many times better the first row is; noise: (max - min) / median");
}

fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn spread(figures: &[f64]) -> f64 {
    let most = figures.iter().copied().fold(f64::MIN, f64::max);
    let least = figures.iter().copied().fold(f64::MAX, f64::min);
    (most - least) / median(figures)
}

/// CPU seconds that this process has used so far.
///
/// # Errors
/// There is no `/proc`.
pub(crate) fn cpu_seconds() -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<f64> = after_name.split_whitespace().skip(11).take(2).flat_map(str::parse).collect();
    // Linux reports these in hundredths of a second on every platform it runs on.
    Ok(fields.iter().sum::<f64>() / 100.0)
}
