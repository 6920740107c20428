// SPDX-License-Identifier: Apache-2.0
// NIXL: the library, each of its plugins, and network cards with RDMA.
#include "../machine/files.hpp"
#include "../report/text.hpp"
#include "checks.hpp"

#include <kvmem.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace doctor {

namespace {

void load(const Options &options) {
    if (options.nixl) {
        kvmem::load_nixl(*options.nixl);
    } else {
        kvmem::load_nixl();
    }
}

// ---- Plugins ----

// The folder of plugins, if the environment names one.
std::optional<std::string> chosen_folder() {
    const char *const folder = std::getenv("NIXL_PLUGIN_DIR");
    if (!folder || !*folder) return {};
    return folder;
}

struct NamedType {
    kvmem::MemoryType type;
    const char *name;
};
constexpr NamedType memory_types[] = {{kvmem::MemoryType::dram, "host memory"},
                                      {kvmem::MemoryType::vram, "GPU memory"},
                                      {kvmem::MemoryType::file, "files"},
                                      {kvmem::MemoryType::object, "objects"},
                                      {kvmem::MemoryType::block, "block devices"}};

std::string types_text(const kvmem::Plugin &plugin) {
    std::string text;
    for (const NamedType &each : memory_types) {
        if (plugin.accepts(each.type)) text += (text.empty() ? "" : ", ") + std::string(each.name);
    }
    return text;
}

// The library that the loader misses: "libcufile.so.0: cannot open shared object file: ...".
std::string missing_library(const std::string &failure) {
    const std::size_t end = failure.find(": cannot open shared object file");
    if (end == std::string::npos) return "";
    // The position after the separator, or 0.
    const std::size_t start = failure.find_last_of(" :(", end - 1) + 1;
    return failure.substr(start, end - start);
}

std::string fix_of_plugin(const std::string &failure) {
    const std::string library = missing_library(failure);
    if (library.empty()) return "install a NIXL whose plugins belong together, or remove this one if it is not needed";
    const auto is = [&library](const char *start) { return library.rfind(start, 0) == 0; };
    if (is("libcufile")) return "install cuFile, which is part of CUDA: the package libcufile, or nvidia-gds";
    if (is("libcudart")) {
        return "install the CUDA runtime, or add its directory, such as /usr/local/cuda/lib64, to LD_LIBRARY_PATH";
    }
    if (is("libcuda.")) return "install the NVIDIA driver; only machines with a GPU need this plugin";
    if (is("libibverbs") || is("librdmacm") || is("libmlx5")) {
        return "install rdma-core: the packages libibverbs1 and librdmacm1";
    }
    return "install the library " + library + ", or add its directory to LD_LIBRARY_PATH";
}

Finding finding_of(const kvmem::Plugin &plugin) {
    Finding found{"nixl.plugin." + plugin.name, "plugin " + plugin.name, Level::ok, "", "",
                  {{"name", plugin.name}}};
    if (plugin.failure) {
        const std::string library = missing_library(*plugin.failure);
        found.level = Level::missing;
        found.text = *plugin.failure;
        found.fix = fix_of_plugin(*plugin.failure);
        found.data.push_back({"missing_library", library.empty() ? Value() : Value(library)});
        return found;
    }
    found.text = types_text(plugin);
    Value::Object parameters;
    for (const auto &each : plugin.parameters) parameters.push_back({each.key, each.value});
    found.data.push_back({"parameters", std::move(parameters)});
    return found;
}

// ---- Settings ----

// The file that NIXL reads its settings from, and why it cannot be read.
struct Settings {
    std::string path;
    bool is_named = false;  // by the environment, so that it must exist
    std::string failure;
};

// NIXL gives no reason if it cannot read the file. Nothing if there is none.
std::optional<Settings> settings_file() {
    Settings file;
    if (const char *const named = std::getenv("NIXL_CONFIG_FILE")) {
        file = {named, true, ""};
    } else if (const char *const home = std::getenv("HOME")) {
        file.path = std::string(home) + "/.nixl.cfg";
    } else {
        return {};
    }
    const int fd = open(file.path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat found = {};
    if (fd < 0) {
        if (errno == ENOENT && !file.is_named) return {};
        file.failure = std::strerror(errno);
    } else if (fstat(fd, &found) == 0 && S_ISDIR(found.st_mode)) {
        file.failure = std::strerror(EISDIR);
    }
    if (fd >= 0) close(fd);
    return file;
}

std::string fix_of(const Settings &file) {
    const std::string other = file.is_named ? "unset NIXL_CONFIG_FILE" : "set NIXL_CONFIG_FILE to a file that can be read";
    if (!file.failure.empty()) return "make " + file.path + " a file that this user can read, or " + other;
    return "correct " + file.path + ": its settings are TOML, and NIXL may reject one; or remove it";
}

// Returns nothing if NIXL creates no agent.
std::optional<kvmem::Agent> check_agent(Reporter &report) {
    const auto file = settings_file();
    Finding found{"nixl.agent", "agent", Level::ok, "an agent was created", "", {}};
    if (file) found.data = {{"settings", file->path}};
    std::optional<kvmem::Agent> agent;
    try {
        agent = kvmem::Agent::create("kvmem-doctor");
        if (file) found.text += "; NIXL reads its settings from " + file->path;
    } catch (const kvmem::Error &error) {
        found.level = Level::failed;
        found.text = error.message();
        found.fix = file ? fix_of(*file) : "see the message; without a reason in it, install NIXL again";
    }
    report.add(found);
    return agent;
}

}  // namespace

void check_nixl(Reporter &report, const Options &options) {
    report.step("load NIXL");
    Finding library{"nixl.library", "library", Level::ok, "", "", {}};
    try {
        load(options);
        library.text = kvmem::nixl_path();
        library.data = {{"path", library.text}};
    } catch (const kvmem::Error &error) {
        library.level = Level::missing;
        library.text = error.message();
        library.fix = "pip install nixl-cu12 or nixl-cu13, and set KVMEM_NIXL_LIBRARY to its libnixl_capi.so (docs/nixl.md)";
        report.add(library);
        return;
    }
    report.add(library);
    report.step("create an agent of NIXL");
    auto agent = check_agent(report);
    if (!agent) return;
    report.step("load the plugins of NIXL");
    const auto plugins = agent->plugins();
    if (plugins.size() == 0) {
        const auto folder = chosen_folder();
        report.add(Finding{"nixl.plugins", "plugins", Level::missing, "NIXL finds no plugin",
                           folder ? "NIXL_PLUGIN_DIR is \"" + *folder + "\": unset or correct it"
                                  : "install NIXL again, with the folder of its plugins",
                           {}});
    }
    for (std::size_t i = 0; i < plugins.size(); ++i) report.add(finding_of(plugins.at(i)));
}

std::vector<std::string> plugin_files(const std::string &library) {
    const std::string directory = chosen_folder() ? *chosen_folder() : library.substr(0, library.rfind('/')) + "/plugins";
    constexpr std::string_view start = "libplugin_", end = ".so";
    std::vector<std::string> names;
    for (const std::string &file : names_in(directory)) {
        if (file.size() <= start.size() + end.size() || file.compare(0, start.size(), start) != 0 ||
            file.compare(file.size() - end.size(), end.size(), end) != 0) {
            continue;
        }
        names.push_back(file.substr(start.size(), file.size() - start.size() - end.size()));
    }
    return names;
}

void check_plugin(Reporter &report, const Options &options, const std::string &plugin) {
    report.step("create a backend of the plugin " + plugin);
    load(options);
    auto agent = kvmem::Agent::create("kvmem-doctor");
    Finding found{"nixl.plugin." + plugin, "plugin " + plugin, Level::ok, "a backend was created", "",
                  {{"name", plugin}}};
    try {
        agent.create_backend(plugin);
    } catch (const kvmem::Error &error) {
        found.level = Level::missing;
        found.text = error.message();
        found.fix = fix_of_plugin(found.text);
    }
    report.add(found);
}

// ---- Network cards ----

void check_rdma_devices(Reporter &report) {
    report.step("list network cards with RDMA");
    const std::string directory = "/sys/class/infiniband";
    Finding found{"nixl.rdma_devices", "RDMA network cards", Level::missing, "none; NIXL uses shared memory and TCP",
                  "needs a network card with RDMA and its driver; in a container: docker run --device /dev/infiniband",
                  {}};
    Value::Array list;
    std::string text;
    bool is_active = false;
    for (const std::string &card : names_in(directory)) {
        for (const std::string &port : names_in(directory + "/" + card + "/ports")) {
            const auto state = text_of(directory + "/" + card + "/ports/" + port + "/state").value_or("unknown");
            is_active |= state.find("ACTIVE") != std::string::npos;
            text += (text.empty() ? "" : ", ") + card + " port " + port + ": " + state.substr(state.find(' ') + 1);
            list.push_back(Value::Object{{"name", card}, {"port", port}, {"state", state}});
        }
    }
    found.data = {{"ports", std::move(list)}};
    if (!text.empty()) {
        found.text = text;
        found.fix = "no port is active: check the cable and the subnet manager";
    }
    if (is_active) {
        const bool has_nodes = access("/dev/infiniband", R_OK | X_OK) == 0;
        found.level = has_nodes ? Level::ok : Level::limited;
        found.fix = has_nodes ? "" : "give the process the devices: docker run --device /dev/infiniband";
        if (!has_nodes) found.text += "; /dev/infiniband is not accessible";
    }
    report.add(found);
}

}  // namespace doctor
