#include "cli/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "base/bytes.h"

namespace omni::cli {
namespace {

constexpr std::string_view kGap = "  ";
constexpr std::size_t kNarrowest = 8;  // of a flexible column

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// At most `width` columns; a cut cell ends in an ellipsis.
std::string fit(std::string_view cell, std::size_t width) {
  if (display_width(cell) <= width) return std::string(cell);
  std::size_t bytes = 0;
  for (std::size_t shown = 0; bytes < cell.size(); ++bytes) {
    if (is_continuation(cell[bytes])) continue;
    if (++shown == width) break;
  }
  return fmt::format("{}…", cell.substr(0, bytes));
}

}  // namespace

std::size_t display_width(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return !is_continuation(c); }));
}

void Table::add_row(std::vector<std::string> cells) {
  assert(cells.size() == columns_.size());
  for (std::string& cell : cells) {
    std::ranges::replace_if(
        cell, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, ' ');
  }
  rows_.push_back(std::move(cells));
}

std::vector<std::size_t> Table::column_widths(std::optional<std::size_t> limit) const {
  std::vector<std::size_t> widths;
  std::size_t total = kGap.size() * (columns_.size() - 1);
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = display_width(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[i]));
    widths.push_back(width);
    total += width;
  }
  // The last flexible column gives way first; what still does not fit wraps on the terminal.
  for (std::size_t i = columns_.size(); limit && total > *limit && i > 0; --i) {
    if (!columns_[i - 1].flexible || widths[i - 1] <= kNarrowest) continue;
    const std::size_t cut = std::min(widths[i - 1] - kNarrowest, total - *limit);
    widths[i - 1] -= cut;
    total -= cut;
  }
  return widths;
}

std::string Table::render(std::optional<std::size_t> width) const {
  const std::vector<std::size_t> widths = column_widths(width);
  std::string text;
  const auto add_line = [&](auto cell_of) {
    std::string line;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::string cell = fit(cell_of(i), widths[i]);
      const std::string padding(widths[i] - display_width(cell), ' ');
      if (i > 0) line += kGap;
      line += columns_[i].align == Align::right ? padding + cell : cell + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  };
  add_line([&](std::size_t i) -> std::string_view { return columns_[i].title; });
  for (const auto& row : rows_) {
    add_line([&](std::size_t i) -> std::string_view { return row[i]; });
  }
  return text;
}

std::string format_age(double seconds) {
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  if (seconds < 120) return fmt::format("{:.0f}s", seconds);
  if (seconds < 120 * 60) return fmt::format("{:.0f}m", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{:.0f}h", seconds / 3600);
  return fmt::format("{:.0f}d", seconds / 86400);
}

std::string format_bytes(std::int64_t bytes) { return bytes == 0 ? "-" : to_string(Bytes(bytes)); }

}  // namespace omni::cli
