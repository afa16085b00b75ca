package wire

import (
	"errors"
	"math"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

var errTruncated = errors.New("the message ends too early")

// A Cursor reads a message that lies in several buffers. A copy of it is a second reader
// of the same bytes.
type Cursor struct {
	current []byte
	later   mem.BufferSlice
	left    int
}

// NewCursor begins at the first byte of data, which must stay until the reading is done.
func NewCursor(data mem.BufferSlice) Cursor {
	return Cursor{later: data, left: data.Len()}
}

// Len returns how many bytes are left.
func (c *Cursor) Len() int { return c.left }

// Take returns a cursor over the next length bytes, and goes on behind them.
func (c *Cursor) Take(length uint64) (Cursor, error) {
	if length > uint64(c.left) {
		return Cursor{}, errTruncated
	}
	taken := *c
	taken.left = int(length)
	return taken, c.skip(int(length))
}

// Read fills all of to.
func (c *Cursor) Read(to []byte) error {
	if len(to) > c.left {
		return errTruncated
	}
	for len(to) > 0 {
		n := copy(to, c.chunk())
		c.advance(n)
		to = to[n:]
	}
	return nil
}

// Append appends all bytes that are left.
func (c *Cursor) Append(to []byte) []byte {
	for c.left > 0 {
		chunk := c.chunk()
		to = append(to, chunk...)
		c.advance(len(chunk))
	}
	return to
}

// Varint reads one.
func (c *Cursor) Varint() (uint64, error) {
	if chunk := c.chunk(); len(chunk) > 0 && chunk[0] < 0x80 {
		c.advance(1)
		return uint64(chunk[0]), nil
	}
	var value uint64
	for shift := 0; shift < 64; shift += 7 {
		chunk := c.chunk()
		if len(chunk) == 0 {
			return 0, errTruncated
		}
		value |= uint64(chunk[0]&0x7f) << shift
		c.advance(1)
		if chunk[0] < 0x80 {
			return value, nil
		}
	}
	return 0, errors.New("a number has more than ten bytes")
}

// A Field is one field of a message.
type Field struct {
	Number protowire.Number
	Type   protowire.Type
	// Value is that of a varint or of a fixed one.
	Value uint64
	// Payload is that of a field with a length.
	Payload Cursor
}

// Next reads the next field; false at the end.
func (c *Cursor) Next() (field Field, ok bool, err error) {
	if c.left == 0 {
		return field, false, nil
	}
	tag, err := c.Varint()
	if err != nil {
		return field, false, err
	}
	number, kind := protowire.DecodeTag(tag)
	if number < protowire.MinValidNumber {
		return field, false, errors.New("a field has an invalid number")
	}
	field.Number, field.Type = number, kind
	switch kind {
	case protowire.VarintType:
		field.Value, err = c.Varint()
	case protowire.Fixed32Type:
		field.Value, err = c.fixed(4)
	case protowire.Fixed64Type:
		field.Value, err = c.fixed(8)
	case protowire.BytesType:
		var length uint64
		if length, err = c.Varint(); err == nil {
			field.Payload, err = c.Take(length)
		}
	default:
		err = errors.New("a field has an unknown wire type")
	}
	return field, err == nil, err
}

// Float64 is the value of a double.
func (f *Field) Float64() float64 { return math.Float64frombits(f.Value) }

// Append appends the field as it is on the wire.
func (f *Field) Append(to []byte) []byte {
	to = protowire.AppendTag(to, f.Number, f.Type)
	switch f.Type {
	case protowire.VarintType:
		return protowire.AppendVarint(to, f.Value)
	case protowire.Fixed32Type:
		return protowire.AppendFixed32(to, uint32(f.Value))
	case protowire.Fixed64Type:
		return protowire.AppendFixed64(to, f.Value)
	default:
		to = protowire.AppendVarint(to, uint64(f.Payload.Len()))
		return f.Payload.Append(to)
	}
}

func (c *Cursor) fixed(size int) (uint64, error) {
	var bytes [8]byte
	if err := c.Read(bytes[:size]); err != nil {
		return 0, err
	}
	var value uint64
	for i := size - 1; i >= 0; i-- {
		value = value<<8 | uint64(bytes[i])
	}
	return value, nil
}

// chunk returns the bytes that lie together, none at the end.
func (c *Cursor) chunk() []byte {
	if c.left == 0 {
		return nil
	}
	for len(c.current) == 0 {
		c.current, c.later = c.later[0].ReadOnlyData(), c.later[1:]
	}
	return c.current[:min(c.left, len(c.current))]
}

func (c *Cursor) advance(n int) {
	c.current, c.left = c.current[n:], c.left-n
}

func (c *Cursor) skip(n int) error {
	for n > 0 {
		step := min(n, len(c.chunk()))
		c.advance(step)
		n -= step
	}
	return nil
}
