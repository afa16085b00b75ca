//! Prepared calls from Rust, in this process: the C ABI of libcounterweight, which its header,
//! server/embedded/counterweight.h, describes. Structs and functions here are those that it uses.
//!
//!     .ci/build release counterweight_embedded
//!     rustc -O client/rust/prepared.rs -L build/release -C link-arg=-Wl,-rpath,$PWD/build/release
//!     ./prepared
use std::ffi::{c_void, CStr};
use std::os::raw::{c_char, c_int};
use std::{mem, ptr, slice};

#[repr(C)]
struct Bytes {
    data: *const c_void,
    size: usize,
}

#[repr(C)]
struct Request {
    struct_size: usize,
    format: i32,
    message: Bytes,
    tensors: *const Bytes,
    num_tensors: usize,
    place: *const c_void,
    context: *mut c_void,
    timeout_seconds: f64,
    stop: *const i32,
    memory: i32,
    stream: *mut c_void,
}

#[repr(C)]
struct Tensor {
    role: i32,
    dtype: i32,
}

#[repr(C)]
struct Signature {
    struct_size: usize,
    inputs: [Tensor; 8],
    num_inputs: usize,
    outputs: [Tensor; 8],
    num_outputs: usize,
    rules: *const *const c_char,
    num_rules: usize,
    metrics: *const *const c_char,
    num_metrics: usize,
    num_numbers: usize,
    num_sums: usize,
    num_maxima: usize,
}

#[repr(C)]
struct Batch {
    struct_size: usize,
    num_sequences: i64,
    sequence_lengths: *const i64,
    length: i64,
    inputs: [*const c_void; 8],
    outputs: [*mut c_void; 8],
    numbers: *mut f64,
    sums: *mut f64,
    maxima: *mut f64,
    timeout_seconds: f64,
    stop: *const i32,
    memory: i32,
    knows_places: i32,
    stream: *mut c_void,
}

#[repr(C)]
struct Failure {
    code: i32,
    message: *const c_char,
    violations: Bytes,
}

#[link(name = "counterweight")]
extern "C" {
    fn cw_open(options: *const c_void, handle: *mut *mut c_void) -> c_int;
    fn cw_prepare(handle: *mut c_void, request: *const Request, plan: *mut *mut c_void) -> c_int;
    fn cw_signature_of(plan: *const c_void) -> *const Signature;
    fn cw_run(plan: *const c_void, batch: *const Batch) -> c_int;
    fn cw_discard(plan: *mut c_void);
    fn cw_close(handle: *mut c_void);
    fn cw_last_error() -> *const Failure;
}

const CW_JSON: i32 = 1;
const CW_FIRST_RULE: usize = 7;
const REQUEST: &str = r#"{"layout": {"padded": {"numSequences": 2, "length": 3}}, "tensors": [
    {"role": "TENSOR_ROLE_ROLLOUT_LOG_PROBS", "dtype": "D_TYPE_F32"},
    {"role": "TENSOR_ROLE_OLD_LOG_PROBS", "dtype": "D_TYPE_F32"},
    {"role": "TENSOR_ROLE_RESPONSE_MASK", "dtype": "D_TYPE_U8"}],
  "method": {"preset": {"name": "token_tis"}}}"#;

/// Returns the library's sentence for a code other than 0.
fn check(code: c_int) -> Result<(), String> {
    match code {
        0 => Ok(()),
        _ => Err(unsafe { CStr::from_ptr((*cw_last_error()).message) }
            .to_string_lossy()
            .into()),
    }
}

fn main() -> Result<(), String> {
    let rollout = [-1.0f32, -2.0, -1.0, -1.0, -3.0, -2.0]; // [2, 3]
    let old = [-1.0f32, -0.5, 0.0, -2.0, -3.0, -1.9];
    let mask = [1u8, 1, 0, 1, 1, 1];
    let mut weights = [0f32; 6];
    unsafe {
        let (mut handle, mut plan) = (ptr::null_mut(), ptr::null_mut());
        check(cw_open(ptr::null(), &mut handle))?;
        // Members that stay zero: no outputs of the library's choice, no limit of time, host memory.
        let mut request: Request = mem::zeroed();
        request.struct_size = mem::size_of::<Request>();
        request.format = CW_JSON;
        request.message = Bytes {
            data: REQUEST.as_ptr().cast(),
            size: REQUEST.len(),
        };
        check(cw_prepare(handle, &request, &mut plan))?;
        let signature = &*cw_signature_of(plan);
        let mut numbers = vec![0f64; signature.num_numbers];

        let mut batch: Batch = mem::zeroed(); // for each batch of the run
        batch.struct_size = mem::size_of::<Batch>();
        (batch.num_sequences, batch.length) = (2, 3);
        batch.inputs[..3].copy_from_slice(&[
            rollout.as_ptr().cast(),
            old.as_ptr().cast(),
            mask.as_ptr().cast(),
        ]);
        batch.outputs[0] = weights.as_mut_ptr().cast();
        batch.numbers = numbers.as_mut_ptr();
        check(cw_run(plan, &batch))?;

        println!("weights {:.4?}", weights);
        let metrics = slice::from_raw_parts(signature.metrics, signature.num_metrics);
        for (i, name) in metrics.iter().enumerate() {
            let number = numbers[CW_FIRST_RULE + 2 * signature.num_rules + i];
            println!("{} {:.6}", CStr::from_ptr(*name).to_string_lossy(), number);
        }
        cw_discard(plan);
        cw_close(handle);
    }
    Ok(())
}
