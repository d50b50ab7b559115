package api

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // The document is a part of the program.
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/swaggest/swgui/v5emb"

	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

// docsPath is the page of the OpenAPI document. It needs no key, because it reveals nothing about this
// installation. Requests from the page go to this server, with the key that the user enters.
const docsPath = "/docs"

// docsFiles are the files that the page loads. The program contains all of them.
var docsFiles = []string{
	"/swagger-ui.css", "/swagger-ui-bundle.js", "/swagger-ui-standalone-preset.js", "/favicon-16x16.png",
	"/favicon-32x32.png",
}

// docs returns the handler of the page and its files.
func (a *API) docs() gin.HandlerFunc {
	ui := v5emb.New("dispatcher", "/openapi.yaml", docsPath)
	page := render{header: make(http.Header)}
	ui.ServeHTTP(&page, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: docsPath}})
	policy := docsPolicy(page.Bytes())
	return func(c *gin.Context) {
		h := c.Writer.Header()
		switch file := c.Param("file"); {
		case file == "" || file == "/":
			h.Set("Content-Security-Policy", policy)
			h.Set("Content-Type", "text/html; charset=utf-8")
			h.Set("Content-Length", strconv.Itoa(page.Len()))
			c.Writer.WriteHeader(http.StatusOK)
			_, err := c.Writer.Write(page.Bytes())
			a.logWriteError(c, err)
		case slices.Contains(docsFiles, file):
			h.Set("Cache-Control", "no-cache") // cached, and revalidated by its ETag
			ui.ServeHTTP(c.Writer, c.Request)
		default:
			a.fail(c, httperr.ErrNoRoute)
		}
	}
}

// A render is a ResponseWriter that keeps a page in memory.
type render struct {
	bytes.Buffer
	header http.Header
}

func (r *render) Header() http.Header { return r.header }

func (r *render) WriteHeader(int) {}

// inline matches the scripts and styles in a page.
var inline = regexp.MustCompile(`(?s)<(script|style)>(.*?)</(?:script|style)>`)

// docsPolicy returns the page's Content-Security-Policy. It allows files of this server, and exactly the
// inline scripts and styles of the page, by hash. Swagger UI has its icons as data URLs.
func docsPolicy(page []byte) string {
	sources := map[string]string{"script": "'self'", "style": "'self'"}
	for _, part := range inline.FindAllSubmatch(page, -1) {
		sum := sha256.Sum256(part[2])
		sources[string(part[1])] += " 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return strings.Join([]string{
		"default-src 'none'", "script-src " + sources["script"], "style-src " + sources["style"],
		"img-src 'self' data:", "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
		"frame-ancestors 'none'",
	}, "; ")
}

//go:embed openapi.yaml
var openapiYAML []byte

// openapi handles GET /openapi.yaml. It needs no key, because it reveals nothing about this installation.
func (a *API) openapi(c *gin.Context) {
	c.Writer.Header().Set("Content-Type", "application/yaml; charset=utf-8")
	c.Writer.WriteHeader(http.StatusOK)
	_, err := c.Writer.Write(openapiYAML)
	a.logWriteError(c, err)
}
