package wire

import "sync"

// mostNames bounds the memory that a server can make a client keep.
const mostNames = 4096

// Names keeps one string of each text, so that the names of metrics, which are the same in
// every answer, are not allocated each time. The zero value is ready.
type Names struct {
	mutex sync.RWMutex
	known map[string]string
}

// Of returns the text as a string.
func (n *Names) Of(text []byte) string {
	n.mutex.RLock()
	name, ok := n.known[string(text)]
	n.mutex.RUnlock()
	if ok {
		return name
	}
	name = string(text)
	n.mutex.Lock()
	defer n.mutex.Unlock()
	if n.known == nil {
		n.known = make(map[string]string)
	}
	if len(n.known) < mostNames {
		n.known[name] = name
	}
	return name
}
