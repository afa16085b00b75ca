package sharedmemory

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
)

const (
	magic          = "CWM1"
	register       = 1
	release        = 2
	packetBytes    = 40
	mostAnswerByte = 512 // more than an answer can have
	// answerTime is only reached where a server is stuck; it answers at once.
	answerTime = 10 * time.Second
)

// A refusedError says that the server does not take a region; the connection is as good as
// before.
type refusedError struct {
	code    codes.Code
	message string
}

func (e *refusedError) Error() string { return fmt.Sprintf("%v: %s", e.code, e.message) }

// A control is a connection to the socket; what was registered over it is gone when it is.
// It is not for use by several goroutines at once.
type control struct {
	conn *net.UnixConn
	// unread are answers to releases, which no call waits for.
	unread int
}

func connect(ctx context.Context, path string) (*control, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unixpacket", path)
	if err != nil {
		return nil, err
	}
	return &control{conn: conn.(*net.UnixConn)}, nil
}

func (c *control) close() { _ = c.conn.Close() }

// isOpen tells whether the server is still there, as far as is known without asking.
func (c *control) isOpen() bool { return c.drain() == nil }

// register lends a region.
func (c *control) register(ctx context.Context, region *Region) (Handle, error) {
	packet := newPacket(register)
	binary.LittleEndian.PutUint32(packet[8:], uint32(region.Access))
	binary.LittleEndian.PutUint64(packet[16:], uint64(len(region.memory)))
	if err := c.drain(); err != nil {
		return Handle{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := c.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return Handle{}, err
	}
	// A context that is done already has set an earlier deadline, which the line above took back.
	if ctx.Err() != nil {
		return Handle{}, ctx.Err()
	}
	rights := unix.UnixRights(int(region.file.Fd()))
	if _, _, err := c.conn.WriteMsgUnix(packet, rights, nil); err != nil {
		return Handle{}, err
	}
	for {
		code, handle, message, err := c.receive()
		switch {
		case err != nil:
			return Handle{}, err
		case c.unread > 0:
			c.unread--
		case code != codes.OK:
			return Handle{}, &refusedError{code, message}
		default:
			return handle, nil
		}
	}
}

// release takes a region back; it waits only for room in the socket.
func (c *control) release(handle Handle) error {
	if err := c.drain(); err != nil {
		return err
	}
	packet := newPacket(release)
	copy(packet[24:], handle[:])
	if err := c.conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	if _, _, err := c.conn.WriteMsgUnix(packet, nil, nil); err != nil {
		return err
	}
	c.unread++
	return nil
}

// drain reads the answers to releases that have come, and notices the connection's end.
func (c *control) drain() error {
	for {
		raw, err := c.conn.SyscallConn()
		if err != nil {
			return err
		}
		var answer [mostAnswerByte]byte
		n, readErr := 0, error(nil)
		err = raw.Read(func(fd uintptr) bool {
			n, _, readErr = unix.Recvfrom(int(fd), answer[:], unix.MSG_DONTWAIT)
			return true
		})
		if err != nil {
			return err
		}
		if errors.Is(readErr, unix.EAGAIN) {
			return nil
		}
		if errors.Is(readErr, unix.EINTR) {
			continue
		}
		if readErr != nil {
			return readErr
		}
		_, _, message, err := parse(answer[:n])
		if err != nil {
			return err
		}
		if c.unread--; c.unread < 0 { // nothing was asked: it has no place for this connection
			return fmt.Errorf("the server ends the connection: %s", message)
		}
	}
}

func (c *control) receive() (codes.Code, Handle, string, error) {
	var answer [mostAnswerByte]byte
	n, err := c.conn.Read(answer[:])
	if err != nil {
		return 0, Handle{}, "", err
	}
	return parse(answer[:n])
}

func newPacket(operation uint32) []byte {
	packet := make([]byte, packetBytes)
	copy(packet, magic)
	binary.LittleEndian.PutUint32(packet[4:], operation)
	return packet
}

func parse(answer []byte) (code codes.Code, handle Handle, message string, err error) {
	if len(answer) == 0 {
		return 0, handle, "", errors.New("the server closed the connection")
	}
	if len(answer) < packetBytes || !bytes.HasPrefix(answer, []byte(magic)) {
		return 0, handle, "", errors.New("the server sent something else than an answer")
	}
	copy(handle[:], answer[24:])
	return codes.Code(binary.LittleEndian.Uint32(answer[4:])), handle, string(answer[packetBytes:]), nil
}
