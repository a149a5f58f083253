#include <CLI/CLI.hpp>

#include "cli/fields.h"
#include "cli/program.h"
#include "provision/garbage.h"

namespace omni::cli {
namespace {

namespace fs = std::filesystem;

struct GcFlags {
  std::string config;
  bool dry_run = false;
  bool force = false;
};

Error refusal(std::string_view what) {
  return {ErrorCode::invalid_config,
          fmt::format("{}, so what is in use is not known and nothing was removed: correct it, or "
                      "remove what only it may use with --force",
                      what)};
}

// A folder that is not there (not mounted, say) would make all of its models' files garbage.
Result<void> check_roots(const std::vector<fs::path>& roots) {
  for (const fs::path& root : roots) {
    std::error_code status;
    if (!fs::is_directory(root, status)) {
      return refusal(fmt::format("the models folder {} is not there", root.string()));
    }
  }
  return {};
}

// The models of the configuration. Unless forced, each of them must be known.
Result<std::vector<ModelSpec>> configured(const fs::path& state, const NodeConfig& config,
                                          bool force) {
  if (!force) CHECK(check_roots(config.models));
  TRY(std::vector<ModelFolder> folders, load_model_folders(config.models));
  std::vector<ModelSpec> models;
  for (ModelFolder& folder : folders) {
    if (folder.spec.ok()) {
      models.push_back(std::move(folder.spec).value());
    } else if (!force) {
      return refusal(fmt::format("{}\nthe model \"{}\" is not valid", folder.spec.error().message,
                                 folder.name));
    }
  }
  const std::vector<std::string> unknown = unprepared(state, models);
  if (!force && !unknown.empty()) {
    return refusal(
        fmt::format("no daemon has prepared the model \"{}\" yet (start it once with `omni serve`)",
                    fmt::join(unknown, "\", \"")));
  }
  return models;
}

Result<void> print(Program& program, const Garbage& garbage, bool dry_run) {
  if (program.json) {
    json::array removed;
    for (const Garbage::Item& item : garbage.removed) {
      removed.push_back(json::object{{"path", item.path.string()}, {"bytes", item.size.count()}});
    }
    json::array busy;
    for (const fs::path& path : garbage.busy) busy.emplace_back(path.string());
    return write_json(program.console, {{"dry_run", dry_run},
                                        {"removed", std::move(removed)},
                                        {"busy", std::move(busy)},
                                        {"freed", garbage.freed.count()}});
  }
  const std::string_view verb = dry_run ? "would remove" : "removed";
  for (const Garbage::Item& item : garbage.removed) {
    CHECK(program.console.write_line(
        fmt::format("{} {} ({})", verb, item.path.string(), to_string(item.size))));
  }
  for (const fs::path& path : garbage.busy) {
    CHECK(program.console.write_line(fmt::format("left {}: it is in work", path.string())));
  }
  return program.console.write_line(
      fmt::format("{} {}", dry_run ? "would free" : "freed", to_string(garbage.freed)));
}

Result<void> gc(Program& program, const GcFlags& flags) {
  const NodePaths paths = node_paths(program);
  const bool named = !flags.config.empty();
  const fs::path file = named ? fs::absolute(flags.config) : paths.config / "omni.toml";
  TRY(const NodeConfig config, load_node_config(file, named));
  TRY(const std::vector<ModelSpec> models, configured(paths.state, config, flags.force));
  GarbageOrder order = keep_models(paths.state, models);
  order.dry_run = flags.dry_run;
  TRY(const Garbage garbage, collect_garbage(order));
  return print(program, garbage, flags.dry_run);
}

}  // namespace

void add_gc(CLI::App& app, Program& program) {
  auto flags = std::make_shared<GcFlags>();
  CLI::App* command = add_command(
      app, "gc", "Remove environments, weights and caches that no configured model uses");
  add_root_flag(*command, program);
  command->add_option("--config", flags->config, "Node config, default CONFIG/omni.toml")
      ->type_name("FILE");
  command->add_flag("--dry-run", flags->dry_run, "Only list what would be removed");
  command->add_flag("--force", flags->force,
                    "Go on although a model is not valid or not prepared: its files are removed");
  add_json_flag(*command, program);
  command->callback(
      [&program, flags] { program.command = [&program, flags] { return gc(program, *flags); }; });
}

}  // namespace omni::cli
