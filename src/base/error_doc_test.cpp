// docs/errors.md shows the error table; OMNI_ACCEPT=1 rewrites it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "base/files.h"

namespace omni {
namespace {

std::string rendered_table() {
  std::string out =
      "| code | HTTP | exit | SDK exception | who | retry | what to do |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n";
  for (const ErrorInfo& row : error_table()) {
    out += fmt::format("| `{}` | {} | {} | `{}` | {} | {} | {} |\n", row.name, row.http_status,
                       row.exit_code, row.sdk_exception, to_string(row.origin),
                       row.retryable ? "yes" : "no", row.remedy);
  }
  return out;
}

TEST(ErrorDocs, TableEqualsTheCode) {
  const std::filesystem::path path = OMNI_SOURCE_DIR "/docs/errors.md";
  const std::string marker = "<!-- error table -->\n";
  std::string text = read_file(path).value();
  const std::size_t at = text.find(marker);
  ASSERT_NE(at, std::string::npos);
  const std::string expected = text.substr(0, at + marker.size()) + rendered_table();
  if (std::getenv("OMNI_ACCEPT") != nullptr) {
    ASSERT_TRUE(write_file_atomic(path, expected).ok());
    return;
  }
  EXPECT_EQ(text, expected) << "run this test with OMNI_ACCEPT=1 to rewrite docs/errors.md";
}

}  // namespace
}  // namespace omni
