#include "cli/table.h"

#include <gtest/gtest.h>

namespace omni::cli {
namespace {

Table sample() {
  Table table(
      {{"NAME", Align::left, true}, {"MEMORY", Align::right}, {"ALIASES", Align::left, true}});
  table.add_row({"minilm", "92 MiB", "text-embedding-3-small"});
  table.add_row({"whisper", "1.2 GiB", ""});
  return table;
}

TEST(Table, AlignsColumnsWithoutTrailingSpaces) {
  EXPECT_EQ(sample().render(std::nullopt),
            "NAME      MEMORY  ALIASES\n"
            "minilm    92 MiB  text-embedding-3-small\n"
            "whisper  1.2 GiB\n");
}

TEST(Table, CutsTheLastFlexibleColumnFirst) {
  EXPECT_EQ(sample().render(30),
            "NAME      MEMORY  ALIASES\n"
            "minilm    92 MiB  text-embedd…\n"
            "whisper  1.2 GiB\n");
}

TEST(Table, KeepsColumnsReadableOnANarrowTerminal) {
  EXPECT_EQ(sample().render(10),
            "NAME      MEMORY  ALIASES\n"
            "minilm    92 MiB  text-em…\n"
            "whisper  1.2 GiB\n");
}

TEST(Table, CountsCodePointsAndCutsBetweenThem) {
  EXPECT_EQ(display_width("größe"), 5u);
  Table table({{"N", Align::left, true}});
  table.add_row({"ääääääääää"});
  EXPECT_EQ(table.render(9), "N\nääääääää…\n");
}

TEST(Table, ShowsNoControlCharacters) {
  Table table({{"N"}});
  table.add_row({"a\x1b[2J\nb"});
  EXPECT_EQ(table.render(std::nullopt), "N\na [2J b\n");
}

TEST(FormatAge, UsesTheUnitThatAPersonWould) {
  EXPECT_EQ(format_age(0.04), "0.0s");
  EXPECT_EQ(format_age(4.24), "4.2s");
  EXPECT_EQ(format_age(9.96), "10s");
  EXPECT_EQ(format_age(119), "119s");
  EXPECT_EQ(format_age(600), "10m");
  EXPECT_EQ(format_age(3 * 3600), "3h");
  EXPECT_EQ(format_age(72 * 3600), "3d");
}

}  // namespace
}  // namespace omni::cli
