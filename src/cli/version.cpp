#include <CLI/CLI.hpp>

#include "cli/program.h"

namespace omni::cli {

void add_version(CLI::App& app, Program& program) {
  CLI::App* command = add_command(app, "version", "Print the version of this program");
  add_json_flag(*command, program);
  command->callback([&program] {
    program.command = [&program] {
      return program.json ? write_json(program.console, {{"version", OMNI_VERSION}})
                          : program.console.write_line("omni " OMNI_VERSION);
    };
  });
}

}  // namespace omni::cli
