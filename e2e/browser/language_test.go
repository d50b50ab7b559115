package browser

import (
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// alike are words that Chinese texts write as English ones do.
var alike = strings.Fields(`Dispatcher API JSON HTTP HTTPS SQL Redis PostgreSQL SQLite URL DNS TLS TCP UTC CSV curl cron IANA Name value POST GET UI CPU XML NDJSON
	daily hourly weekly monthly every redis redis_url public_url doctor dispatcher callback send url payload paid https health readyz Retry-After idempotency_key due_at
	read send operate admin Asia Shanghai hold master_key status external_id webhook
	alipay wechat-v standard payment http- body-success standard-v hmac-sha body sorted-kv rsa basic bearer RSA none
	callbacks due idempotency key KiB never checkout channel`)

// Every page is in the language that was asked for, all of it but data, and as well made in Chinese as in English.
func TestBrowserLanguages(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel()
	s := newScene(t, harness.SQLiteEmbedded).one()
	for _, language := range []string{"zh-CN", "en"} {
		b := newTab(t, s.Base)
		b.signIn(harness.AdminKey)
		b.prefer("language", language)
		b.prefer("zone", "Asia%2FShanghai")
		var v verdict
		b.crawl(func(address, shape string) {
			if is := ask[string](b, `document.documentElement.lang`); is != language {
				t.Errorf("%s is in %s", address, is)
			}
			for _, stranger := range ask[[]string](b, inPage("strangers("+quoted(alike)+")")) {
				v.add(shape, []finding{{"language", language, stranger}})
			}
			if language == "en" {
				return
			}
			for _, l := range []view{views[0], views[2]} {
				b.put(l)
				v.add(shape+" "+l.name, append(b.check(), b.checkNames()...))
			}
			b.put(views[0])
		})
		v.complain(t)
	}
}
