// Output that is compared with a file of testdata/. OMNI_ACCEPT=1 in the environment makes what the
// test sees the new file.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace omni::cli {

inline void expect_golden_file(const std::filesystem::path& file, const std::string& seen) {
  if (const char* accept = std::getenv("OMNI_ACCEPT"); accept && std::string_view(accept) == "1") {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << seen;
    return;
  }
  std::ostringstream expected;
  expected << std::ifstream(file, std::ios::binary).rdbuf();
  EXPECT_EQ(seen, expected.str()) << file << " differs; OMNI_ACCEPT=1 accepts the new output";
}

inline void expect_golden(const std::string& name, const std::string& seen) {
  expect_golden_file(std::filesystem::path(__FILE__).parent_path() / "testdata" / name, seen);
}

}  // namespace omni::cli
