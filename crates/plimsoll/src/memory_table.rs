//! The accounts of a device's memory as a table, whose rows sum to the total.

use plimsoll_device::{ByteCount, MemoryReport};

use crate::budget::Budget;

/// The table: a row for each account that was ever used, a total, the peak and the budget. All in plain bytes, so that
/// sums can be checked.
pub(crate) fn render(title: &str, report: &MemoryReport, budget: Budget) -> String {
    let used = |bytes: &ByteCount| bytes.0.to_string();
    let mut rows: Vec<[String; 3]> = vec![[title.to_owned(), "bytes".to_owned(), "peak bytes".to_owned()]];
    for account in report.accounts.iter().filter(|account| account.peak_bytes > ByteCount::ZERO) {
        rows.push([format!("  {}", account.name), used(&account.bytes), used(&account.peak_bytes)]);
    }
    rows.push(["  total".to_owned(), used(&report.used_bytes), used(&report.peak_bytes)]);
    let budget = match budget {
        Budget::Unlimited => "unlimited".to_owned(),
        Budget::Bytes(_) | Budget::Percent(_) => used(&report.budget_bytes),
    };
    rows.push(["  budget".to_owned(), budget, String::new()]);

    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let mut table = String::new();
    for [name, bytes, peak] in &rows {
        let line = format!("{name:<0$}  {bytes:>1$}  {peak:>2$}", widths[0], widths[1], widths[2]);
        table.push_str(line.trim_end());
        table.push('\n');
    }
    table
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_device::Ledger;

    use super::*;

    #[test]
    fn the_rows_sum_to_the_total() {
        let memory = Ledger::new(ByteCount(5000));
        let weights = memory.charge(memory.account("unet.weights"), ByteCount(1234)).unwrap();
        drop(memory.charge(memory.account("activations"), ByteCount(3000)).unwrap());
        let _more = memory.charge(memory.account("activations"), ByteCount(66)).unwrap();
        memory.account("never used");
        expect![[r#"
            after denoise   bytes  peak bytes
              unet.weights   1234        1234
              activations      66        3000
              total          1300        4234
              budget         5000
        "#]]
        .assert_eq(&render("after denoise", &memory.report(), Budget::Bytes(ByteCount(5000))));
        drop(weights);
    }
}
