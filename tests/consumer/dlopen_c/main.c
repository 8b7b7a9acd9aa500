/* usage: attention LIBRARY FUNCTION... : opens the library, finds every function by name, and calls it. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <flashattn/flashattn.h>

static void *library;

/* C99 has no cast from an object pointer to a function pointer; POSIX has this one. */
static void find(const char *name, void *function) {
  void *symbol = dlsym(library, name);
  if (symbol == NULL) printf("wrong: no %s\n", name);
  memcpy(function, &symbol, sizeof symbol);
}

#define CHECK(condition)                                       \
  do {                                                         \
    if (!(condition)) {                                        \
      printf("wrong: line %d: %s\n", __LINE__, #condition);    \
      return 1;                                                \
    }                                                          \
  } while (0)

int main(int argc, char **argv) {
  fa_status (*args_init)(fa_forward_args *, size_t);
  fa_status (*forward)(const fa_forward_args *, fa_version, struct CUstream_st *);
  fa_status (*workspace_size)(const fa_forward_args *, fa_version, size_t *);
  fa_status (*prepare)(const fa_forward_args *, fa_version);
  fa_status (*explain)(const fa_forward_args *, fa_version, fa_forward_plan *, char *, size_t, size_t *);
  int32_t (*kernel_count)(void);
  fa_status (*kernel_info_get)(int32_t, fa_kernel_info *);
  fa_status (*build_info_get)(fa_build_info *);
  int32_t (*version_number)(void);
  const char *(*version_string)(void);
  const char *(*last_error)(void);
  const char *(*status_name)(fa_status);
  int i;

  CHECK(argc > 2);
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    printf("wrong: %s\n", dlerror());
    return 1;
  }
  for (i = 2; i < argc; ++i) {
    if (dlsym(library, argv[i]) == NULL) {
      printf("wrong: no %s\n", argv[i]);
      return 1;
    }
  }

  find("fa_forward_args_init", &args_init);
  find("fa_forward", &forward);
  find("fa_forward_workspace_size", &workspace_size);
  find("fa_forward_prepare", &prepare);
  find("fa_forward_explain", &explain);
  find("fa_kernel_count", &kernel_count);
  find("fa_kernel_info_get", &kernel_info_get);
  find("fa_build_info_get", &build_info_get);
  find("fa_version_number", &version_number);
  find("fa_version_string", &version_string);
  find("fa_last_error", &last_error);
  find("fa_status_name", &status_name);

  CHECK(version_number() == FLASHATTN_VERSION);
  CHECK(strlen(version_string()) >= 5);
  CHECK(strcmp(status_name(FA_UNSUPPORTED), "FA_UNSUPPORTED") == 0);
  CHECK(strcmp(last_error(), "") == 0);

  for (i = 0; i < kernel_count(); ++i) {
    fa_kernel_info info = {0};
    info.size = sizeof info;
    CHECK(kernel_info_get(i, &info) == FA_OK);
    CHECK(info.name != NULL && info.limits != NULL);
  }
  {
    fa_kernel_info info = {0};
    fa_build_info build = {0};
    info.size = sizeof info;
    build.size = sizeof build;
    CHECK(kernel_info_get(kernel_count(), &info) == FA_INVALID_ARGUMENT);
    CHECK(strlen(last_error()) > 0);
    CHECK(build_info_get(&build) == FA_OK);
    CHECK(build.version == FLASHATTN_VERSION);
  }
  {
    float q[] = {1.0f}, k[] = {0.0f, 1.09861228866811f}, v[] = {0.0f, 4.0f}, out = -1.0f;
    const fa_tensor one = {NULL, FA_FLOAT32, 0, {1, 1, 1, 1}, {1, 1, 1, 1}};
    const fa_tensor two = {NULL, FA_FLOAT32, 0, {1, 1, 2, 1}, {2, 2, 1, 1}};
    fa_forward_args args;
    fa_forward_plan plan = {0};
    char text[64];
    size_t bytes = 0, length = 0;
    CHECK(args_init(&args, sizeof args) == FA_OK);
    args.q = args.out = one;
    args.k = args.v = two;
    args.q.data = q;
    args.k.data = k;
    args.v.data = v;
    args.out.data = &out;
    args.scale = 1.0f;
    args.scale_is_set = 1;
    plan.size = sizeof plan;
    CHECK(workspace_size(&args, FA_CPU, &bytes) == FA_OK);
    CHECK(prepare(&args, FA_CPU) == FA_OK);
    CHECK(explain(&args, FA_CPU, &plan, text, sizeof text, &length) == FA_OK);
    CHECK(plan.runs == 1 && plan.version == FA_CPU && length > 0);
    CHECK(forward(&args, FA_CPU, NULL) == FA_OK);
    CHECK(fabsf(out - 3.0f) < 1e-5f);
  }
  CHECK(dlclose(library) == 0);
  printf("attention: ok\n");
  return 0;
}
