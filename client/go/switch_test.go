package counterweight_test

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// A tcpSwitch passes connections on to an address that the test chooses, and cuts them.
type tcpSwitch struct {
	address string

	mutex  sync.Mutex
	target string
	open   []net.Conn
	frozen bool
}

// waits reports whether nothing is to be passed on.
func (s *tcpSwitch) waits() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.frozen && s.open != nil
}

// freeze stops the client's bytes; the client notices nothing.
func (s *tcpSwitch) freeze() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.frozen = true
}

// thaw passes everything on again.
func (s *tcpSwitch) thaw() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.frozen = false
}

// thawing reads from a client unless the switch is frozen.
type thawing struct {
	from *tcpSwitch
	io.Reader
}

func (t thawing) Read(to []byte) (int, error) {
	for t.from.waits() {
		time.Sleep(time.Millisecond)
	}
	return t.Reader.Read(to)
}

func newSwitch(t *testing.T, target string) *tcpSwitch {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	made := &tcpSwitch{address: listener.Addr().String(), target: target}
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := made.connect(from)
			if err != nil {
				continue
			}
			running.Add(2)
			for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
				go func() {
					defer running.Done()
					_, _ = io.Copy(pair[0], thawing{made, pair[1]})
					_ = pair[0].Close()
				}()
			}
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		made.cut()
		running.Wait()
	})
	return made
}

func (s *tcpSwitch) connect(from net.Conn) (net.Conn, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	to, err := net.Dial("tcp", s.target)
	if err != nil {
		_ = from.Close()
		return nil, err
	}
	s.open = append(s.open, from, to)
	return to, nil
}

// to passes later connections on to another address.
func (s *tcpSwitch) to(target string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.target = target
}

// cut ends the connections that there are.
func (s *tcpSwitch) cut() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, connection := range s.open {
		_ = connection.Close()
	}
	s.open = nil
}
