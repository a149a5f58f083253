// Holds docs/configuration.md to the tables of keys. OMNI_ACCEPT=1 writes the tables anew.
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/files.h"
#include "config/model_spec.h"
#include "config/node_config.h"

namespace omni {
namespace {

const std::filesystem::path kDocument =
    std::filesystem::path(__FILE__).parent_path() / "../../docs/configuration.md";

// A Markdown table per table of the file, under its heading.
std::string render(const std::vector<KeyDoc>& keys) {
  std::string text;
  std::string current = "none yet";
  for (const KeyDoc& key : keys) {
    const std::size_t dot = key.key.rfind('.');
    const std::string table = dot == std::string::npos ? "" : key.key.substr(0, dot);
    const bool is_array = key.type == "array of tables";
    if (table != current && !is_array) {
      current = table;
      const char* heading = table.empty()        ? "\n### Top of the file\n"
                            : table == "weights" ? "\n### `[[{}]]`\n"
                                                 : "\n### `[{}]`\n";
      text += fmt::format(fmt::runtime(heading), table);
      text += "\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n";
    }
    if (is_array) continue;  // its elements' keys follow under their own heading
    const bool literal = key.fallback != "required" && !key.fallback.starts_with('(');
    text += fmt::format("| `{}` | {} | {} | {} |\n", key.key.substr(dot + 1), key.type,
                        literal ? "`" + key.fallback + "`" : key.fallback, key.meaning);
  }
  return text + "\n";
}

// The document with what stands between the two marks of `name` replaced.
std::string replace_section(const std::string& document, const std::string& name,
                            const std::string& content) {
  const std::string begin = fmt::format("<!-- keys of {} -->\n", name);
  const std::string end = fmt::format("<!-- end of keys of {} -->\n", name);
  const std::size_t from = document.find(begin);
  const std::size_t to = document.find(end);
  EXPECT_NE(from, std::string::npos) << begin;
  EXPECT_NE(to, std::string::npos) << end;
  if (from == std::string::npos || to == std::string::npos) return document;
  return document.substr(0, from + begin.size()) + content + document.substr(to);
}

TEST(ConfigurationDocument, HasEveryKeyAsTheCodeHasIt) {
  auto document = read_file(kDocument);
  ASSERT_TRUE(document.ok()) << document.error().message;
  std::string expected = replace_section(*document, "model.toml", render(model_spec_keys()));
  expected = replace_section(expected, "omni.toml", render(node_config_keys()));
  if (std::getenv("OMNI_ACCEPT") != nullptr) {
    ASSERT_TRUE(write_file_atomic(kDocument, expected).ok());
  } else {
    EXPECT_EQ(*document, expected)
        << "docs/configuration.md is not up to date: OMNI_ACCEPT=1 build/dev/test/config_test";
  }
}

}  // namespace
}  // namespace omni
