//! Tables for people.

/// Prints rows under a header, columns as wide as their widest cell.
pub(crate) fn print(header: &[&str], rows: &[Vec<String>]) {
    print!("{}", text(header, rows));
}

/// Rows under a header, one a line, columns as wide as their widest cell.
pub(crate) fn text(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..header.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut out = String::new();
        for (cell, width) in cells.zip(&widths) {
            out.push_str(cell);
            out.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
        }
        format!("{}\n", out.trim_end())
    };
    let mut all = line(&mut header.iter().copied());
    for row in rows {
        all.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    all
}
