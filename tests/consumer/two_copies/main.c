/* usage: host PLUGIN... : opens the plugins in one process. Each computes; an error in the first leaves no
 * trace in the others; none of those that hold their own copy (copy_*.so but copy_shared.so) shows an fa_
 * function. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef struct plugin {
  void *handle;
  float (*attention)(void);
  int (*fail)(void);
  const char *(*error)(void);
} plugin;

static void find(void *handle, const char *name, void *function) {
  void *symbol = dlsym(handle, name);
  memcpy(function, &symbol, sizeof symbol);
}

int main(int argc, char **argv) {
  plugin plugins[8];
  const int count = argc - 1;
  int i;
  if (count < 2 || count > 8) return 2;
  for (i = 0; i < count; ++i) {
    plugin *p = &plugins[i];
    /* RTLD_GLOBAL: what one exports, the next could pick up. */
    p->handle = dlopen(argv[i + 1], RTLD_NOW | RTLD_GLOBAL);
    if (p->handle == NULL) {
      printf("wrong: %s\n", dlerror());
      return 1;
    }
    find(p->handle, "plugin_attention", &p->attention);
    find(p->handle, "plugin_fail", &p->fail);
    find(p->handle, "plugin_error", &p->error);
    if (strstr(argv[i + 1], "copy_shared") == NULL && dlsym(p->handle, "fa_forward") != NULL) {
      printf("wrong: %s shows fa_forward\n", argv[i + 1]);
      return 1;
    }
  }
  for (i = 0; i < count; ++i) {
    const float got = plugins[i].attention();
    if (got < 2.9999f || got > 3.0001f) {
      printf("wrong: %s: O = %g\n", argv[i + 1], (double)got);
      return 1;
    }
  }
  if (!plugins[0].fail() || strlen(plugins[0].error()) == 0) {
    printf("wrong: no error in the first\n");
    return 1;
  }
  for (i = 1; i < count; ++i) {
    if (strcmp(plugins[i].error(), "") != 0) {
      printf("wrong: the first one's error shows in %s\n", argv[i + 1]);
      return 1;
    }
  }
  for (i = count - 1; i >= 0; --i) dlclose(plugins[i].handle);
  printf("attention: ok, %d copies\n", count);
  return 0;
}
