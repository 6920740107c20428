// SPDX-License-Identifier: Apache-2.0
// Files: io_uring, and in each directory a temporary file, direct I/O and space.
#include "../machine/files.hpp"
#include "../machine/system_calls.hpp"
#include "../report/text.hpp"
#include "checks.hpp"

#include <kvmem.hpp>

#include <sys/statfs.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>

namespace doctor {

namespace {

constexpr std::uint64_t trial_size = 1 << 20;

// ---- File systems ----

struct FileSystem {
    std::uint32_t magic;
    const char *name;
};

// From linux/magic.h, and of file systems outside the kernel.
constexpr FileSystem file_systems[] = {
    {0xEF53, "ext4"},         {0x58465342, "XFS"},       {0x9123683E, "Btrfs"},     {0x01021994, "tmpfs"},
    {0x794C7630, "overlay"},  {0x6969, "NFS"},           {0x65735546, "FUSE"},      {0x0BD00BD0, "Lustre"},
    {0x2FC12FC1, "ZFS"},      {0xFF534D42, "CIFS"},      {0xFE534D42, "SMB 2"},     {0x00C36400, "CephFS"},
    {0x47504653, "GPFS"},     {0x19830326, "BeeGFS"},    {0x858458F6, "ramfs"},     {0xF2F52010, "F2FS"},
    {0x01021997, "9P"},       {0x73717368, "squashfs"},  {0x9FA0, "proc"},          {0x62656572, "sysfs"},
    {0x6A656A63, "virtiofs"}, {0xCA451A4E, "bcachefs"},  {0x42494E4D, "binfmt_misc"},
};

std::string name_of_file_system(std::uint32_t magic) {
    for (const FileSystem &each : file_systems) {
        if (each.magic == magic) return each.name;
    }
    char text[32];
    std::snprintf(text, sizeof text, "file system 0x%x", magic);
    return text;
}

// ---- Files in a directory ----

kvmem::Region temporary_file(const std::string &directory, kvmem::Flags<kvmem::DiskFlag> flags) {
    kvmem::DiskOptions options;
    options.size = trial_size;
    options.directory = directory;
    options.flags = flags;
    return kvmem::Region::create_disk(options);
}

class DirectoryCheck {
public:
    DirectoryCheck(Reporter &report, const std::string &path, std::size_t index)
        : report_(report), path_(path), id_("files." + std::to_string(index)) {}

    void run() {
        report_.step("create a file in " + path_);
        struct statfs info;
        if (statfs(path_.c_str(), &info) != 0) {
            return unusable(std::strerror(errno), errno == ENOENT ? "create the directory" : "choose another --directory");
        }
        magic_ = static_cast<std::uint32_t>(info.f_type);
        try {
            const auto region = temporary_file(path_, {});
            usable(region.info());
        } catch (const kvmem::Error &error) {
            return unusable(std::string(error.message()), fix_of(error));
        }
        report_.step("create a file for direct I/O in " + path_);
        direct();
    }

private:
    static std::string fix_of(const kvmem::Error &error) {
        switch (error.status()) {
        case kvmem::Status::permission_denied: return "give this user write access, or choose another --directory";
        case kvmem::Status::out_of_memory: return "free space, or raise the quota or ulimit -f";
        default: return "choose another --directory";
        }
    }

    Finding finding(const char *id, const char *title) const {
        return {id_ + "." + id, std::string(title) + " in " + path_, Level::ok, "", "", {{"directory", path_}}};
    }

    void unusable(const std::string &reason, const std::string &fix) {
        Finding write = finding("writable", "files");
        write.level = Level::failed;
        write.text = reason;
        write.fix = fix;
        report_.add(write);
        Finding direct = finding("direct_io", "O_DIRECT");
        direct.level = Level::skipped;
        direct.text = "no file can be created";
        report_.add(direct);
    }

    void usable(const kvmem::RegionInfo &info) {
        Finding write = finding("writable", "files");
        struct statvfs space;
        const bool has_space = statvfs(path_.c_str(), &space) == 0;
        const std::uint64_t free = has_space ? std::uint64_t(space.f_bavail) * space.f_frsize : 0;
        const bool is_reserved = info.flags.has(kvmem::RegionFlag::preallocated);
        write.text = name_of_file_system(magic_) + ", " + size_text(free) + " free" +
                     (is_reserved ? "" : "; space cannot be reserved, so writing may fail later");
        write.data.push_back({"file_system", name_of_file_system(magic_)});
        write.data.push_back({"free_bytes", free});
        write.data.push_back({"reserves_space", is_reserved});
        report_.add(write);
    }

    void direct() {
        Finding direct = finding("direct_io", "O_DIRECT");
        try {
            const auto info = temporary_file(path_, kvmem::DiskFlag::direct_required).info();
            direct.text = "offsets, sizes and memory in multiples of " + std::to_string(info.alignment) + " bytes";
            direct.data.push_back({"alignment_bytes", info.alignment});
        } catch (const kvmem::Error &error) {
            direct.level = Level::missing;
            direct.text = name_of_file_system(magic_) + ": " + std::string(error.message());
            direct.fix = "use a directory on a file system with O_DIRECT, such as ext4 or XFS on a local disk";
        }
        report_.add(direct);
    }

    Reporter &report_;
    const std::string path_;
    const std::string id_;
    std::uint32_t magic_ = 0;
};

}  // namespace

void check_files(Reporter &report, const std::string &directory, std::size_t index) {
    DirectoryCheck(report, directory, index).run();
}

void check_io_uring(Reporter &report) {
    report.step("create an io_uring");
    const int failure = probe_io_uring();
    const auto disabled = number_of("/proc/sys/kernel/io_uring_disabled");
    Finding finding{"files.io_uring", "io_uring", Level::ok, "available", "",
                    {{"error", failure == 0 ? Value() : Value(strerrorname_np(failure))},
                     {"kernel_io_uring_disabled", disabled ? Value(*disabled) : Value()}}};
    if (failure != 0) {
        finding.level = Level::missing;
        finding.text = std::string("io_uring_setup fails: ") + std::strerror(failure) +
                       "; threads read and write files";
        if (disabled.value_or(0) != 0) {
            finding.fix = "as root: sysctl kernel.io_uring_disabled=0";
        } else if (field_of("/proc/self/status", "Seccomp").value_or("0") != "0") {
            finding.fix = "permit io_uring_setup, io_uring_enter and io_uring_register in the seccomp profile: "
                          "docker run --security-opt seccomp=PROFILE.json";
        } else if (failure == ENOSYS) {
            finding.fix = "use Linux 5.6 or newer, with CONFIG_IO_URING";
        } else {
            finding.fix = "raise the limit that is exhausted: ulimit -n or ulimit -l, or free memory";
        }
    }
    report.add(finding);
}

}  // namespace doctor
