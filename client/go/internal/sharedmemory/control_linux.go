package sharedmemory

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

const (
	magic           = "CWM1"
	register        = 1
	release         = 2
	packetBytes     = 40
	mostAnswerBytes = 512 // more than an answer can have
	// answerTime is only reached if a server is stuck; it answers at once. The call's own deadline may
	// be earlier.
	answerTime = 10 * time.Second
)

// A refusedError means that the server does not take a region; the connection is as good as before.
type refusedError struct {
	code    codes.Code
	message string
}

func (e *refusedError) Error() string { return fmt.Sprintf("%v: %s", e.code, e.message) }

// errEnded: the server has closed the connection.
var errEnded = errors.New("the server closed the connection")

// errLate: a packet was not answered in its time, and is not yet.
var errLate = errors.New("the server has not answered a packet in its time")

// A packet was sent and is not answered.
type packet struct {
	// answered gets the answer, or is closed with the connection.
	answered chan answer
	// abandoned: no call waits for it any more.
	abandoned bool
}

type answer struct {
	code    codes.Code
	handle  Handle
	message string
}

// A control is a connection to the socket; what was registered over it is gone when it is. Any number
// of goroutines may use it, and none waits for another.
type control struct {
	conn *net.UnixConn
	raw  syscall.RawConn

	// mutex guards what follows; it is never held while something is waited for.
	mutex sync.Mutex
	// due are answers that have not arrived, in the order of their packets; those of releases are nil.
	due []*packet
	// late lasts from the first packet that is not answered in its time until all are.
	late bool
	// ended is the reason why there is no connection any more.
	ended error

	// over is closed when nothing is read any more.
	over chan struct{}
}

// connect does not wait: a socket takes a connection at once or has no room.
func connect(path string) (*control, error) {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	control := &control{conn: conn, raw: raw, over: make(chan struct{})}
	go control.read()
	return control, nil
}

// close ends the connection, and the waits for its answers.
func (c *control) close() { _ = c.conn.Close() }

// isOpen reports whether the server is still there, as far as is known without a packet.
func (c *control) isOpen() bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.ended != nil {
		return false
	}
	open := false
	err := c.raw.Control(func(fd uintptr) {
		var first [1]byte
		n, _, err := unix.Recvfrom(int(fd), first[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		open = n > 0 || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
	})
	return err == nil && open
}

// isLate reports whether a packet waits for longer than it may.
func (c *control) isLate() bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.late
}

// register lends a region. It waits until the context ends, and at most for answerTime: errLate.
func (c *control) register(ctx context.Context, region *Region) (Handle, error) {
	bytes := newPacket(register)
	binary.LittleEndian.PutUint32(bytes[8:], uint32(region.Access))
	binary.LittleEndian.PutUint64(bytes[16:], uint64(len(region.memory)))
	sent := &packet{answered: make(chan answer, 1)}
	if err := c.send(bytes, unix.UnixRights(int(region.file.Fd())), sent); err != nil {
		return Handle{}, c.reason(ctx, err)
	}
	timer := time.NewTimer(answerTime)
	defer timer.Stop()
	select {
	case answer, came := <-sent.answered:
		if !came {
			return Handle{}, errEnded
		}
		if answer.code != codes.OK {
			return Handle{}, &refusedError{answer.code, answer.message}
		}
		return answer.handle, nil
	case <-ctx.Done():
		c.abandon(sent, errors.Is(ctx.Err(), context.DeadlineExceeded))
		return Handle{}, ctx.Err()
	case <-timer.C:
		c.abandon(sent, true)
		return Handle{}, errLate
	}
}

// reason returns why nothing can be sent: a server that refuses a peer sends the reason before it closes.
func (c *control) reason(ctx context.Context, err error) error {
	if !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		return err
	}
	select {
	case <-c.over:
		c.mutex.Lock()
		defer c.mutex.Unlock()
		return cmp.Or(c.ended, err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// abandon leaves a packet; no call waits for its answer any more.
func (c *control) abandon(sent *packet, late bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	sent.abandoned = true
	c.late = c.late || (late && slices.Contains(c.due, sent))
	select {
	case answer, came := <-sent.answered: // it arrived meanwhile
		if came && answer.code == codes.OK {
			_ = c.sendLocked(releasing(answer.handle), nil, nil)
		}
	default:
	}
}

// release takes a region back, and waits for nothing.
func (c *control) release(handle Handle) error { return c.send(releasing(handle), nil, nil) }

func (c *control) send(bytes, rights []byte, sent *packet) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.sendLocked(bytes, rights, sent)
}

// sendLocked fails where the socket has no room: a server that reads nothing is late.
func (c *control) sendLocked(bytes, rights []byte, sent *packet) error {
	if c.ended != nil {
		return c.ended
	}
	var failed error
	if err := c.raw.Control(func(fd uintptr) {
		_, failed = unix.SendmsgN(int(fd), bytes, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}); err != nil {
		return err
	}
	if errors.Is(failed, unix.EAGAIN) {
		c.late = true
		return errLate
	}
	if failed == nil {
		c.due = append(c.due, sent)
	}
	return failed
}

// read takes the answers until the connection ends.
func (c *control) read() {
	defer close(c.over)
	var bytes [mostAnswerBytes]byte
	for {
		n, err := c.conn.Read(bytes[:])
		if errors.Is(err, unix.ECONNRESET) {
			// It precedes what the server sent last, if that left a packet unread.
			n, err = c.conn.Read(bytes[:])
		}
		var came answer
		if err == nil {
			came, err = parse(bytes[:n])
		}
		if err = c.take(came, err); err != nil {
			_ = c.conn.Close()
			return
		}
	}
}

// take gives an answer to the packet that it belongs to.
func (c *control) take(came answer, err error) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if err == nil && len(c.due) == 0 { // no packet was sent: it has no place for this connection
		err = fmt.Errorf("the server ends the connection: %s", came.message)
	}
	if err != nil {
		c.ended = err
		for _, sent := range c.due {
			if sent != nil {
				close(sent.answered)
			}
		}
		c.due = nil
		return err
	}
	sent := c.due[0]
	c.due = c.due[1:]
	c.late = c.late && len(c.due) > 0
	switch {
	case sent == nil:
	case !sent.abandoned:
		sent.answered <- came
	case came.code == codes.OK:
		return c.sendLocked(releasing(came.handle), nil, nil)
	}
	return nil
}

func releasing(handle Handle) []byte {
	packet := newPacket(release)
	copy(packet[24:], handle[:])
	return packet
}

func newPacket(operation uint32) []byte {
	packet := make([]byte, packetBytes)
	copy(packet, magic)
	binary.LittleEndian.PutUint32(packet[4:], operation)
	return packet
}

func parse(bytes []byte) (answer, error) {
	if len(bytes) == 0 {
		return answer{}, errEnded
	}
	if len(bytes) < packetBytes || string(bytes[:len(magic)]) != magic {
		return answer{}, errors.New("the server sent something else than an answer")
	}
	parsed := answer{code: codes.Code(binary.LittleEndian.Uint32(bytes[4:])), message: string(bytes[packetBytes:])}
	copy(parsed.handle[:], bytes[24:])
	return parsed, nil
}
