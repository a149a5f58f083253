// The one binary: `omni serve` is the daemon, every other command its client.
#include "cli/cli.h"
#include "node/node.h"

namespace {

omni::Result<void> serve(omni::cli::ServeOptions options) {
  TRY(std::filesystem::path lib_dir, omni::node::installed_lib_dir());
  return omni::node::serve({.paths = std::move(options.paths),
                            .config_file = std::move(options.config_file),
                            .config_required = options.config_required,
                            .config = std::move(options.config),
                            .models = std::move(options.models),
                            .lib_dir = std::move(lib_dir)});
}

}  // namespace

int main(int argc, char** argv) { return omni::cli::run(argc, argv, serve); }
