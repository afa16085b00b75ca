// Package wire moves tensors between the caller's slices and gRPC's buffers without
// work per element: requests are framed around the bytes of the slices, and answers are read out of
// the received frames, copied once to where they stay. All other fields
// are protobuf's.
package wire
