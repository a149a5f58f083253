// A table for people: columns as wide as their cells, cut to the terminal's width.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace omni::cli {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::left;
  bool flexible = false;  // gives way first when the terminal is narrow
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell a column. Line breaks and other control characters are shown as spaces, so that no
  // text from a model can move the cursor.
  void add_row(std::vector<std::string> cells);
  // Lines with a header, without trailing spaces. `width`: of the terminal, or nothing for
  // no limit.
  std::string render(std::optional<std::size_t> width) const;

 private:
  std::vector<std::size_t> column_widths(std::optional<std::size_t> limit) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Code points, which is columns for all text but wide scripts.
std::size_t display_width(std::string_view text);

// "4.2s", "12s", "5m", "3h", "2d".
std::string format_age(double seconds);
// "-" for none.
std::string format_bytes(std::int64_t bytes);

}  // namespace omni::cli
