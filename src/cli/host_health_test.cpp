#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "cli/host_facts.h"

namespace omni::cli {
namespace {

HostFacts good_host() {
  HostFacts facts;
  facts.uv = "/usr/bin/uv";
  facts.curl = "/usr/bin/curl";
  facts.python3 = "/usr/bin/python3";
  facts.shim = "/usr/lib/omni/omni-shim";
  facts.cgroup = CgroupVersion::v2;
  facts.cgroup_writable = true;
  facts.open_files = 1 << 20;
  facts.memory_total = 8_GiB;
  facts.memory_available = 7_GiB;
  facts.host_budget = 6_GiB;
  facts.listen = {{"127.0.0.1:8484", 0}};
  facts.run_folder = "/run/user/1000/omni";
  facts.run_folder_own = facts.run_folder_exists = facts.run_folder_private = true;
  facts.daemon_socket = "/run/user/1000/omni/admin.sock";
  return facts;
}

Finding finding_of(const HostFacts& facts, std::string_view check) {
  for (const Finding& finding : judge(facts)) {
    if (finding.check == check) return finding;
  }
  ADD_FAILURE() << "no check " << check;
  return {};
}

TEST(HostHealth, FindsNothingWrongWithAGoodHost) {
  for (const Finding& finding : judge(good_host())) {
    EXPECT_EQ(finding.health, Health::ok) << finding.check;
    EXPECT_EQ(finding.fix, "") << finding.check;
    EXPECT_NE(finding.found, "") << finding.check;
    EXPECT_NE(finding.why, "") << finding.check;
  }
}

TEST(HostHealth, SaysWhatToDoAboutEachFlaw) {
  HostFacts facts = good_host();
  facts.uv.reset();
  facts.curl.reset();
  facts.shim.reset();
  facts.namespaces_error = EPERM;
  facts.cgroup_writable = false;
  facts.open_files = 512;
  facts.config_error = Error{ErrorCode::invalid_config, "omni.toml:1: x"};
  facts.listen = {{"127.0.0.1:8484", EADDRINUSE}, {"[::1]:8484", EADDRNOTAVAIL}};
  facts.run_folder_private = false;
  facts.daemon_error = Error{ErrorCode::daemon_unreachable, "start one"};
  for (const auto& [check, health] :
       {std::pair("uv", Health::warning), std::pair("curl", Health::warning),
        std::pair("omni-shim", Health::problem), std::pair("namespaces", Health::warning),
        std::pair("cgroup", Health::warning), std::pair("open files", Health::problem),
        std::pair("config", Health::problem), std::pair("address", Health::problem),
        std::pair("run folder", Health::problem), std::pair("daemon", Health::warning)}) {
    const Finding finding = finding_of(facts, check);
    EXPECT_EQ(finding.health, health) << check;
    EXPECT_NE(finding.fix, "") << check;
  }
  EXPECT_EQ(judge(facts)[10].health, Health::warning) << "a machine without IPv6";
}

TEST(HostHealth, AnAddressInUseIsRightWhenADaemonRuns) {
  HostFacts facts = good_host();
  facts.listen = {{"127.0.0.1:8484", EADDRINUSE}};
  EXPECT_EQ(finding_of(facts, "address").health, Health::ok);
}

TEST(HostHealth, MemoryMustBeFreeOnlyBeforeTheDaemonStarts) {
  HostFacts facts = good_host();
  facts.memory_available = 1_GiB;
  EXPECT_EQ(finding_of(facts, "memory").health, Health::ok);
  facts.daemon_error = Error{ErrorCode::daemon_unreachable, "start one"};
  EXPECT_EQ(finding_of(facts, "memory").health, Health::warning);
}

TEST(HostHealth, RefusesASocketPathThatIsTooLong) {
  HostFacts facts = good_host();
  facts.socket_path_length = 108;
  EXPECT_EQ(finding_of(facts, "run folder").health, Health::problem);
}

}  // namespace
}  // namespace omni::cli
