package dispatcher

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// senders are the packages of a server that may make HTTP requests: the guarded client, the exporter of
// traces and the sign-in, whose collector and provider are the operator's. Package client is for callers.
var senders = []string{"dispatch/outbound", "dispatch/trace", "web/signin", "client"}

// TestOneOutgoingClient checks that no package of a server goes around the guard.
func TestOneOutgoingClient(t *testing.T) {
	requests := []string{"Client", "Transport", "DefaultClient", "DefaultTransport", "Get", "Head", "Post",
		"PostForm"}
	for _, f := range files(t) {
		outside := strings.HasPrefix(f.dir, "cmd/") || strings.HasPrefix(f.dir, "e2e/") ||
			strings.HasPrefix(f.dir, "internal/") || strings.HasPrefix(f.dir, "deploy/")
		if f.test || outside || slices.Contains(senders, f.dir) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			pkg, ok := sel.X.(*ast.Ident)
			if ok && pkg.Name == "http" && slices.Contains(requests, sel.Sel.Name) {
				t.Errorf("%s uses http.%s; send with dispatch/outbound", f.at(n), sel.Sel.Name)
			}
			return true
		})
	}
}
