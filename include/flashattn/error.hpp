/// What the library throws. Raised before any launch, outputs untouched; the text names the argument, its
/// value and the rule it breaks.
#pragma once

#include <stdexcept>
#include <string>

#include <flashattn/flashattn.h>
#include <flashattn/types.hpp>

FLASHATTN_NAMESPACE_BEGIN

/// Base of all of them; thrown itself only for a fault of the library (FA_INTERNAL_ERROR).
class Error : public std::runtime_error {
 public:
  Error(fa_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  /// The C interface's status.
  fa_status status() const noexcept { return status_; }

 private:
  fa_status status_;
};

/// An argument breaks a documented rule (FA_INVALID_ARGUMENT).
class InvalidArgument : public Error {
 public:
  explicit InvalidArgument(const std::string& text) : Error(FA_INVALID_ARGUMENT, text) {}
};

/// A valid problem that the named kernel, this build or this device cannot do (FA_UNSUPPORTED).
class Unsupported : public Error {
 public:
  explicit Unsupported(const std::string& text) : Error(FA_UNSUPPORTED, text) {}
};

/// Host or device memory could not be had (FA_OUT_OF_MEMORY).
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(const std::string& text) : Error(FA_OUT_OF_MEMORY, text) {}
};

/// The CUDA runtime or driver refused, or there is no usable device (FA_CUDA_ERROR).
class CudaError : public Error {
 public:
  explicit CudaError(const std::string& text) : Error(FA_CUDA_ERROR, text) {}
};

namespace detail {

/// Throws what `status` stands for, with this thread's last error text; returns for FA_OK.
inline void check(fa_status status) {
  switch (status) {
    case FA_OK:
      return;
    case FA_INVALID_ARGUMENT:
      throw InvalidArgument(fa_last_error());
    case FA_UNSUPPORTED:
      throw Unsupported(fa_last_error());
    case FA_OUT_OF_MEMORY:
      throw OutOfMemory(fa_last_error());
    case FA_CUDA_ERROR:
      throw CudaError(fa_last_error());
    default:
      throw Error(status, fa_last_error());
  }
}

}  // namespace detail

FLASHATTN_NAMESPACE_END
