package wire

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// An Encoder is a message that frames itself.
type Encoder interface {
	// Encode returns the whole message; gRPC frees it.
	Encode() (mem.BufferSlice, error)
}

// A Decoder takes the bytes of a message, which are gone when Decode returns.
type Decoder interface {
	Decode(message Cursor) error
}

// Codec is gRPC's codec for calls with the messages Encoder and Decoder.
type Codec struct{}

// Name identifies the bytes as protobuf's.
func (Codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (Codec) Marshal(message any) (mem.BufferSlice, error) {
	encoder, ok := message.(Encoder)
	if !ok {
		return nil, fmt.Errorf("%T does not encode itself", message)
	}
	return encoder.Encode()
}

// Unmarshal implements encoding.CodecV2.
func (Codec) Unmarshal(data mem.BufferSlice, message any) error {
	decoder, ok := message.(Decoder)
	if !ok {
		return fmt.Errorf("%T does not decode itself", message)
	}
	return decoder.Decode(NewCursor(data))
}
