#include <CLI/CLI.hpp>

#include "base/sha256.h"
#include "cli/program.h"

namespace omni::cli {
namespace {

constexpr std::size_t kKeyBytes = 24;

// The key is shown once: what is kept of it is its digest.
Result<void> make_key(Program& program, const std::string& name) {
  const std::string key = "omni-" + random_hex(kKeyBytes);
  const std::string digest = sha256_hex(key);
  if (program.json) {
    return write_json(program.console, {{"name", name}, {"key", key}, {"sha256", digest}});
  }
  program.console.write_error(
      "add this to omni.toml; the key itself is not kept anywhere, and shown this once: " + key);
  return program.console.write(
      fmt::format("[[keys]]\nname = \"{}\"\nsha256 = \"{}\"\n", name, digest));
}

}  // namespace

void add_key(CLI::App& app, Program& program) {
  auto name = std::make_shared<std::string>();
  CLI::App* command = add_command(app, "key", "Make an API key, and its lines for omni.toml");
  command->add_option("name", *name, "Whose it is")->required()->type_name("NAME");
  add_json_flag(*command, program);
  command->callback([&program, name] {
    program.command = [&program, name] { return make_key(program, *name); };
  });
}

}  // namespace omni::cli
