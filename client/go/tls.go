package counterweight

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// TLSFiles are paths of PEM files.
type TLSFiles struct {
	// RootCAs are the authorities to trust. Empty: the system's.
	RootCAs string
	// Certificate and Key are the client's, if the server wants one; both or none.
	Certificate, Key string
	// ServerName is the name to verify in the server's certificate. Empty: the target's host.
	ServerName string
}

// fileCredentials read their files at each handshake. Handshakes are rare: one for each
// connection.
type fileCredentials struct {
	mutex sync.Mutex
	files TLSFiles
}

func newFileCredentials(files TLSFiles) (credentials.TransportCredentials, error) {
	if (files.Certificate == "") != (files.Key == "") {
		return nil, errors.New("counterweight: TLSFiles needs both Certificate and Key, or none of them")
	}
	if _, err := files.load(); err != nil {
		return nil, err
	}
	return &fileCredentials{files: files}, nil
}

func (f TLSFiles) load() (credentials.TransportCredentials, error) {
	config := &tls.Config{ServerName: f.ServerName, MinVersion: tls.VersionTLS12}
	if f.RootCAs != "" {
		pem, err := readRegular(f.RootCAs)
		if err != nil {
			return nil, fmt.Errorf("counterweight: TLSFiles.RootCAs: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("counterweight: TLSFiles.RootCAs: %s has no certificate", f.RootCAs)
		}
	}
	if f.Certificate != "" {
		pair, err := f.pair()
		if err != nil {
			return nil, fmt.Errorf("counterweight: TLSFiles.Certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(config), nil
}

func (f TLSFiles) pair() (tls.Certificate, error) {
	certificate, err := readRegular(f.Certificate)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := readRegular(f.Key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certificate, key)
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *fileCredentials) ClientHandshake(
	ctx context.Context, authority string, connection net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	c.mutex.Lock()
	files := c.files
	c.mutex.Unlock()
	loaded, err := files.load()
	if err != nil {
		return nil, nil, err
	}
	return loaded.ClientHandshake(ctx, authority, connection)
}

// ServerHandshake implements credentials.TransportCredentials.
func (c *fileCredentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("counterweight: these are a client's credentials")
}

// Info implements credentials.TransportCredentials.
func (c *fileCredentials) Info() credentials.ProtocolInfo {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return credentials.ProtocolInfo{SecurityProtocol: "tls", ServerName: c.files.ServerName}
}

// Clone implements credentials.TransportCredentials.
func (c *fileCredentials) Clone() credentials.TransportCredentials {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return &fileCredentials{files: c.files}
}

// OverrideServerName implements credentials.TransportCredentials.
func (c *fileCredentials) OverrideServerName(name string) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.files.ServerName = name
	return nil
}
