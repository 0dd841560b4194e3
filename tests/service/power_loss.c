/* What is on disk when the power goes: a library to be loaded before all others (LD_PRELOAD).

   Under the folder LOSES_FOLDER every file is copied to LOSES_SHADOW when it is synced, as a whole; a file that is gone
   disappears there when its folder is synced. So the shadow holds what a disk must hold, and nothing else: whoever
   kills the process and puts the shadow in place of the folder has taken away every write that was not synced. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int real_sync(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    return real(fd);
}

/* The path of an open file below the folder, or NULL. */
static const char *below(int fd, char *path) {
    const char *folder = getenv("LOSES_FOLDER");
    char link[64];
    if (folder == NULL) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0) return NULL;
    path[length] = 0;
    size_t many = strlen(folder);
    if (strncmp(path, folder, many) != 0 || (path[many] != '/' && path[many] != 0)) return NULL;
    return path + many;
}

static void make_folders(char *path) {
    for (char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = 0;
        mkdir(path, 0700);
        *at = '/';
    }
}

static void copy(const char *from, const char *shadow) {
    char aside[PATH_MAX + 16], block[65536];
    snprintf(aside, sizeof aside, "%s.aside%d", shadow, (int)getpid());
    make_folders(aside);
    int in = open(from, O_RDONLY), out = open(aside, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ssize_t many;
    while (in >= 0 && out >= 0 && (many = read(in, block, sizeof block)) > 0)
        if (write(out, block, (size_t)many) != many) abort();
    if (in >= 0) close(in);
    if (out >= 0) close(out);
    if (in < 0) unlink(aside);
    else rename(aside, shadow);
}

/* Names that are gone from a folder are gone from its shadow. */
static void forget(const char *folder, const char *shadow) {
    DIR *open_shadow = opendir(shadow);
    if (open_shadow == NULL) return;
    struct dirent *entry;
    while ((entry = readdir(open_shadow)) != NULL) {
        char here[2 * PATH_MAX], there[2 * PATH_MAX];
        struct stat about;
        snprintf(here, sizeof here, "%s/%s", folder, entry->d_name);
        snprintf(there, sizeof there, "%s/%s", shadow, entry->d_name);
        if (strstr(there, ".aside") == NULL && lstat(here, &about) != 0) unlink(there);
    }
    closedir(open_shadow);
}

static int synced(const char *name, int fd) {
    int result = real_sync(name, fd);
    char path[PATH_MAX], shadow[2 * PATH_MAX];
    const char *inner = below(fd, path);
    struct stat about;
    if (result != 0 || inner == NULL || fstat(fd, &about) != 0) return result;
    snprintf(shadow, sizeof shadow, "%s%s", getenv("LOSES_SHADOW"), inner);
    if (S_ISDIR(about.st_mode)) forget(path, shadow);
    else if (S_ISREG(about.st_mode) && about.st_nlink > 0) copy(path, shadow);
    return result;
}

int fsync(int fd) { return synced("fsync", fd); }
int fdatasync(int fd) { return synced("fdatasync", fd); }
