// Conformance is this client's driver of tests/conformance (its README has the protocol):
// it reads runs as JSON lines from stdin and reports them on stdout.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"sync"
	"time"

	cw "github.com/counterweight/counterweight/client/go"
)

// maxLineBytes is above the largest run, which has all goldens.
const maxLineBytes = 64 << 20

type run struct {
	Run    int    `json:"run"`
	Target string `json:"target"`
	Client struct {
		Timeout    *float64 `json:"timeout"`
		Attempts   int      `json:"attempts"`
		Transport  string   `json:"transport"`
		ChunkBytes int      `json:"chunk_bytes"`
		Token      string   `json:"token"`
		TokenFile  string   `json:"token_file"`
		TLS        *struct {
			RootCertificates string `json:"root_certificates"`
			Certificate      string `json:"certificate"`
			Key              string `json:"key"`
			ServerName       string `json:"server_name"`
		} `json:"tls"`
	} `json:"client"`
	Calls      []call `json:"calls"`
	Concurrent bool   `json:"concurrent"`
}

// report is the result of a run or of a call.
type report map[string]any

func (r *run) options() ([]cw.ClientOption, error) {
	var options []cw.ClientOption
	if r.Client.Timeout != nil {
		options = append(options, cw.WithTimeout(seconds(*r.Client.Timeout)))
	}
	if r.Client.Attempts > 0 {
		options = append(options, cw.WithRetry(cw.RetryPolicy{Attempts: r.Client.Attempts}))
	}
	if r.Client.Transport != "" {
		transport, err := cw.ParseTransport(r.Client.Transport)
		if err != nil {
			return nil, err
		}
		options = append(options, cw.WithTransport(transport))
	}
	if r.Client.ChunkBytes > 0 {
		options = append(options, cw.WithChunkBytes(r.Client.ChunkBytes))
	}
	if r.Client.Token != "" {
		options = append(options, cw.WithToken(r.Client.Token))
	}
	if r.Client.TokenFile != "" {
		options = append(options, cw.WithTokenFile(r.Client.TokenFile))
	}
	if files := r.Client.TLS; files != nil {
		options = append(options, cw.WithTLS(cw.TLSFiles{
			RootCAs: files.RootCertificates, Certificate: files.Certificate, Key: files.Key, ServerName: files.ServerName,
		}))
	}
	return options, nil
}

// refused is the report of a client that refuses its own options.
func (r *run) refused(err error, log *warnings) report {
	calls := make([]report, len(r.Calls))
	for i := range calls {
		calls[i] = report{
			"ok": false, "code": "INVALID_ARGUMENT", "kind": "invalid", "message": err.Error(), "text": err.Error(),
		}
	}
	return report{"run": r.Run, "calls": calls, "warnings": log.all()}
}

func (r *run) do(log *warnings) report {
	options, err := r.options()
	if err != nil {
		return report{"run": r.Run, "failed": err.Error()}
	}
	client, err := cw.New(r.Target, options...)
	if err != nil {
		return r.refused(err, log)
	}
	defer func() { _ = client.Close() }()
	reports := make([]report, len(r.Calls))
	var calls sync.WaitGroup
	for i := range r.Calls {
		if !r.Concurrent {
			reports[i] = r.Calls[i].do(client)
			continue
		}
		calls.Add(1)
		go func() {
			defer calls.Done()
			reports[i] = r.Calls[i].do(client)
		}()
	}
	calls.Wait()
	return report{"run": r.Run, "calls": reports, "warnings": log.all()}
}

// seconds is the longest duration where there are more.
func seconds(s float64) time.Duration {
	return time.Duration(min(s*float64(time.Second), math.MaxInt64-1024))
}

func (c *call) do(client *cw.Client) report {
	time.Sleep(seconds(c.After))
	begin := time.Now() // before the timers
	ctx := context.Background()
	if c.Timeout > 0 {
		bounded, cancel := context.WithTimeout(ctx, seconds(c.Timeout))
		defer cancel()
		ctx = bounded
	}
	if c.CancelAfter > 0 {
		cancelled, cancel := context.WithCancel(ctx)
		defer cancel()
		ctx = cancelled
		time.AfterFunc(seconds(c.CancelAfter), cancel)
	}
	if c.CloseAfter > 0 {
		time.AfterFunc(seconds(c.CloseAfter), func() { _ = client.Close() })
	}
	result, err := c.answer(ctx, client)
	if err != nil {
		result = failure(err)
	}
	result["seconds"] = time.Since(begin).Seconds()
	return result
}

func (c *call) answer(ctx context.Context, client *cw.Client) (report, error) {
	switch c.Do {
	case "server_info":
		info, err := client.ServerInfo(ctx)
		return report{"ok": true, "version": info.GetVersion()}, err
	case "step":
		return c.step(ctx, client)
	case "list_methods":
		methods, err := client.ListMethods(ctx)
		return report{"ok": true, "methods": len(methods)}, err
	}
	batch, err := c.batch()
	if err != nil {
		return nil, err
	}
	method, err := c.method()
	if err != nil {
		return nil, err
	}
	result, err := client.Correct(ctx, batch, method, c.options()...)
	if err != nil {
		return nil, err
	}
	return success(result), nil
}

// warnings are the log lines of this process so far.
type warnings struct {
	mutex sync.Mutex
	lines []string
}

func (w *warnings) Write(line []byte) (int, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.lines = append(w.lines, string(line))
	return len(line), nil
}

func (w *warnings) all() []string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return append([]string{}, w.lines...)
}

func main() {
	log := &warnings{}
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Writer(log), nil)))
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, maxLineBytes)
	var mutex sync.Mutex
	var runs sync.WaitGroup
	for lines.Scan() {
		var read run
		if err := json.Unmarshal(lines.Bytes(), &read); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		runs.Add(1)
		go func() {
			defer runs.Done()
			text, err := json.Marshal(read.do(log))
			if err != nil {
				text, _ = json.Marshal(report{"run": read.Run, "failed": err.Error()})
			}
			mutex.Lock()
			defer mutex.Unlock()
			fmt.Println(string(text))
		}()
	}
	runs.Wait()
}
