package dispatcher

import (
	"go/ast"
	"strings"
	"testing"
)

// decoders are what reads bytes from outside, or from a store that others can write, with the fuzz test of
// each. A new decoder gets a line here; make test-long runs every fuzz test that there is.
var decoders = []struct{ reads, dir, fuzz string }{
	{"JSON: syntax, members, texts", "web/api", "FuzzScanner"},
	{"callbacks and polls of requests", "web/api", "FuzzDecode"},
	{"bodies and queries of every route", "web/api", "FuzzRequests"},
	{"templates of schedules", "web/api", "FuzzTemplate"},
	{"cursors of lists", "web/query", "FuzzCursor"},
	{"cursors of the feed", "web/query", "FuzzOutcomeCursor"},
	{"times, in bodies and queries", "web/query", "FuzzTime"},
	{"durations in bodies", "web/api", "FuzzJSONDuration"},
	{"filters of pages", "web/ui", "FuzzFilter"},
	{"cursors of pages", "web/query", "FuzzPlace"},
	{"where a form leads", "web/ui", "FuzzLocal"},
	{"times in forms", "web/ui", "FuzzInput"},
	{"forms", "web/ui", "FuzzForm"},
	{"values of charts", "web/ui/picture", "FuzzCharts"},
	{"tiers of charts", "web/ui/picture", "FuzzLadder"},
	{"scales of charts", "web/ui/picture", "FuzzLinear"},
	{"scales of charts", "web/ui/picture", "FuzzLogarithmic"},
	{"times of charts", "web/ui/picture", "FuzzMoments"},
	{"addresses", "dispatch/outbound", "FuzzCheckURL"},
	{"headers and content types", "dispatch/outbound/sign", "FuzzHeaders"},
	{"egress_allow", "dispatch/outbound", "FuzzEgressAllow"},
	{"Retry-After", "dispatch/outbound", "FuzzRetryAfter"},
	{"compressed answers", "dispatch/outbound", "FuzzGzip"},
	{"charsets of answers", "dispatch/outbound/internal/parse", "FuzzCharset"},
	{"XML of answers, XML paths", "dispatch/outbound/rule", "FuzzXML"},
	{"JSON pointers", "dispatch/outbound/rule", "FuzzPointer"},
	{"amounts", "dispatch/outbound/rule", "FuzzDecimal"},
	{"predicates, on JSON of answers", "dispatch/outbound/rule", "FuzzPredicate"},
	{"success rules", "dispatch/outbound/rule", "FuzzParseRule"},
	{"rules of polls", "dispatch/outbound/rule", "FuzzParsePollRule"},
	{"signers", "dispatch/outbound/sign", "FuzzParseSigner"},
	{"signatures", "dispatch/outbound/sign", "FuzzVerify"},
	{"signatures, as a receiver checks them", "client", "FuzzVerifier"},
	{"fields that are signed one by one", "dispatch/outbound/sign", "FuzzSortedKV"},
	{"secrets and keys", "dispatch/outbound/sign", "FuzzSecret"},
	{"master keys", "dispatch/secret", "FuzzMasterKeys"},
	{"ciphertexts", "dispatch/secret", "FuzzSealed"},
	{"sealed headers", "dispatch/secret", "FuzzSealedHeaders"},
	{"places of a re-encryption", "dispatch/control", "FuzzReencryptPlace"},
	{"links to a merchant's page", "dispatch/control", "FuzzLinkToken"},
	{"durations", "schedule", "FuzzDuration"},
	{"tiers", "schedule", "FuzzTiers"},
	{"cron specs", "schedule", "FuzzParseSpec"},
	{"time zones", "schedule", "FuzzZone"},
	{"ids, in the embedded index", "schedule/memq", "FuzzKey"},
	{"records in Redis: bounds and round trip", "schedule/redisq", "FuzzDecodeRecord"},
	{"lanes in Redis", "schedule/redisq", "FuzzLane"},
	{"generations in Redis", "schedule/redisq", "FuzzGeneration"},
	{"INFO of Redis", "schedule/redisq", "FuzzInfo"},
	{"redis_url", "schedule/redisq", "FuzzRedisURL"},
	{"URLs that are shown", "cmd/dispatcher/internal/config", "FuzzMaskURLNeverShowsThePassword"},
	{"settings files", "cmd/dispatcher/internal/config", "FuzzSettingsFile"},
	{"lines of an import", "cmd/dispatcher/internal/importer", "FuzzImportLines"},
	{"files of an import", "cmd/dispatcher/internal/importer", "FuzzSource"},
	{"rates of an import", "cmd/dispatcher/internal/importer", "FuzzImportRate"},
	{"rates", "store", "FuzzRate"},
	{"lanes of addresses", "store", "FuzzAddressLane"},
	{"hosts", "store", "FuzzHost"},
	{"ids", "store", "FuzzID"},
	{"card numbers in bodies", "store", "FuzzMaskPAN"},
	{"histograms", "store", "FuzzQuantile"},
	{"columns of JSON", "store/sqlstore", "FuzzColumns"},
	{"result callbacks of polls", "store/sqlstore", "FuzzStoredResult"},
}

// TestEveryDecoderIsFuzzed: each decoder of the table has its fuzz test, with seeds that plain go test runs,
// and each fuzz test is in the table.
func TestEveryDecoderIsFuzzed(t *testing.T) {
	found := map[string]int{} // by directory and name: how many seeds are added
	for _, f := range files(t) {
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || !f.test || !strings.HasPrefix(fn.Name.Name, "Fuzz") {
				continue
			}
			name := f.dir + " " + fn.Name.Name
			found[name] = 0
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && isCall(call, "f", "Add") {
					found[name]++
				}
				return true
			})
		}
	}
	for _, d := range decoders {
		name := d.dir + " " + d.fuzz
		seeds, ok := found[name]
		switch {
		case !ok:
			t.Errorf("%s: there is no fuzz test %s", d.reads, name)
		case seeds == 0:
			t.Errorf("%s: %s adds no seeds", d.reads, name)
		}
		delete(found, name)
	}
	for name := range found {
		t.Errorf("%s is not in the table of decoders", name)
	}
}
