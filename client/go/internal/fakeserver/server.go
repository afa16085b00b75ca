// Package fakeserver is a server of the contract that answers as the test chooses.
package fakeserver

import (
	"context"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "github.com/counterweight/counterweight/client/go/counterweightv1"
)

// A Server answers with its functions; those that are nil are UNIMPLEMENTED.
type Server struct {
	pb.UnimplementedCorrectionServiceServer

	OnCorrect  func(context.Context, *pb.CorrectRequest) (*pb.CorrectResponse, error)
	OnStream   func(pb.CorrectionService_CorrectStreamServer) error
	OnInfo     func() (*pb.GetServerInfoResponse, error)
	OnMerge    func(*pb.MergeSumsRequest) (*pb.MergeSumsResponse, error)
	OnDiagnose func(*pb.DiagnoseRequest) (*pb.DiagnoseResponse, error)

	mutex    sync.Mutex
	requests []*pb.CorrectRequest
	metadata []metadata.MD
}

// Start serves on a free port until the test ends, and returns the address.
func (s *Server) Start(t testing.TB, options ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return s.Serve(t, listener, options...)
}

// Serve serves on the listener until the test ends.
func (s *Server) Serve(t testing.TB, listener net.Listener, options ...grpc.ServerOption) string {
	t.Helper()
	server := grpc.NewServer(append([]grpc.ServerOption{grpc.MaxRecvMsgSize(1 << 30)}, options...)...)
	pb.RegisterCorrectionServiceServer(server, s)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return listener.Addr().String()
}

// Requests are those of Correct so far.
func (s *Server) Requests() []*pb.CorrectRequest {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return append([]*pb.CorrectRequest(nil), s.requests...)
}

// Metadata are those of all calls so far.
func (s *Server) Metadata() []metadata.MD {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return append([]metadata.MD(nil), s.metadata...)
}

func (s *Server) seen(ctx context.Context, request *pb.CorrectRequest) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	values, _ := metadata.FromIncomingContext(ctx)
	s.metadata = append(s.metadata, values)
	if request != nil {
		s.requests = append(s.requests, request)
	}
}

// Correct implements the service.
func (s *Server) Correct(ctx context.Context, request *pb.CorrectRequest) (*pb.CorrectResponse, error) {
	s.seen(ctx, request)
	if s.OnCorrect == nil {
		return s.UnimplementedCorrectionServiceServer.Correct(ctx, request)
	}
	return s.OnCorrect(ctx, request)
}

// CorrectStream implements the service.
func (s *Server) CorrectStream(stream pb.CorrectionService_CorrectStreamServer) error {
	s.seen(stream.Context(), nil)
	if s.OnStream == nil {
		return s.UnimplementedCorrectionServiceServer.CorrectStream(stream)
	}
	return s.OnStream(stream)
}

// GetServerInfo implements the service.
func (s *Server) GetServerInfo(ctx context.Context, request *pb.GetServerInfoRequest) (*pb.GetServerInfoResponse, error) {
	s.seen(ctx, nil)
	if s.OnInfo == nil {
		return s.UnimplementedCorrectionServiceServer.GetServerInfo(ctx, request)
	}
	return s.OnInfo()
}

// MergeSums implements the service.
func (s *Server) MergeSums(ctx context.Context, request *pb.MergeSumsRequest) (*pb.MergeSumsResponse, error) {
	s.seen(ctx, nil)
	if s.OnMerge == nil {
		return s.UnimplementedCorrectionServiceServer.MergeSums(ctx, request)
	}
	return s.OnMerge(request)
}

// Diagnose implements the service.
func (s *Server) Diagnose(ctx context.Context, request *pb.DiagnoseRequest) (*pb.DiagnoseResponse, error) {
	s.seen(ctx, nil)
	if s.OnDiagnose == nil {
		return s.UnimplementedCorrectionServiceServer.Diagnose(ctx, request)
	}
	return s.OnDiagnose(request)
}
