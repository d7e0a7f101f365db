package standins;

import java.io.IOException;
import java.io.Reader;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;
import java.util.function.Supplier;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.charfilter.MappingCharFilter;
import org.apache.lucene.analysis.charfilter.NormalizeCharMap;
import org.apache.lucene.analysis.core.FlattenGraphFilter;
import org.apache.lucene.analysis.core.WhitespaceTokenizer;
import org.apache.lucene.analysis.miscellaneous.ASCIIFoldingFilter;
import org.apache.lucene.analysis.miscellaneous.WordDelimiterGraphFilter;
import org.elasticsearch.Build;
import org.elasticsearch.action.bulk.BulkItemResponse;
import org.elasticsearch.action.bulk.BulkRequest;
import org.elasticsearch.action.delete.DeleteRequest;
import org.elasticsearch.action.search.SearchRequest;
import org.elasticsearch.action.search.SearchResponse;
import org.elasticsearch.action.support.WriteRequest;
import org.elasticsearch.client.internal.node.NodeClient;
import org.elasticsearch.cluster.metadata.IndexNameExpressionResolver;
import org.elasticsearch.cluster.node.DiscoveryNodes;
import org.elasticsearch.cluster.service.ClusterService;
import org.elasticsearch.common.Strings;
import org.elasticsearch.common.io.stream.NamedWriteableRegistry;
import org.elasticsearch.common.settings.ClusterSettings;
import org.elasticsearch.common.settings.IndexScopedSettings;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.common.settings.SettingsFilter;
import org.elasticsearch.features.NodeFeature;
import org.elasticsearch.index.analysis.AbstractCharFilterFactory;
import org.elasticsearch.index.analysis.CharFilterFactory;
import org.elasticsearch.index.analysis.NormalizingCharFilterFactory;
import org.elasticsearch.index.analysis.PreConfiguredTokenFilter;
import org.elasticsearch.index.analysis.PreConfiguredTokenizer;
import org.elasticsearch.index.analysis.TokenFilterFactory;
import org.elasticsearch.index.mapper.Mapper;
import org.elasticsearch.index.mapper.NumberFieldMapper.NumberType;
import org.elasticsearch.index.query.AbstractQueryBuilder;
import org.elasticsearch.index.query.QueryBuilder;
import org.elasticsearch.index.query.QueryBuilders;
import org.elasticsearch.indices.analysis.AnalysisModule.AnalysisProvider;
import org.elasticsearch.plugins.ActionPlugin;
import org.elasticsearch.plugins.AnalysisPlugin;
import org.elasticsearch.plugins.MapperPlugin;
import org.elasticsearch.plugins.Plugin;
import org.elasticsearch.rest.BaseRestHandler;
import org.elasticsearch.rest.RestController;
import org.elasticsearch.rest.RestHandler;
import org.elasticsearch.rest.RestRequest;
import org.elasticsearch.rest.RestResponse;
import org.elasticsearch.rest.RestStatus;
import org.elasticsearch.search.SearchHit;
import org.elasticsearch.search.builder.SearchSourceBuilder;
import org.elasticsearch.xcontent.XContentBuilder;
import org.elasticsearch.xcontent.XContentParser;

/** Does what Headrace needs of modules that no Maven repository has: rest-root, reindex, analysis-common, mapper-extras. */
public class StandIns extends Plugin implements ActionPlugin, AnalysisPlugin, MapperPlugin {
    private ClusterService cluster;

    @Override
    public Collection<?> createComponents(PluginServices services) {
        cluster = services.clusterService();
        return List.of();
    }

    @Override
    public Collection<RestHandler> getRestHandlers(
            Settings settings, NamedWriteableRegistry registry, RestController controller, ClusterSettings clusterSettings,
            IndexScopedSettings indexSettings, SettingsFilter filter, IndexNameExpressionResolver resolver,
            Supplier<DiscoveryNodes> nodes, Predicate<NodeFeature> features) {
        return List.of(new About(), new DeleteByQuery());
    }

    /** A number with scaling_factor: a double that is not rounded. */
    @Override
    public Map<String, Mapper.TypeParser> getMappers() {
        return Map.of("scaled_float", (name, node, context) -> {
            node.remove("scaling_factor");
            return NumberType.DOUBLE.parser().parse(name, node, context);
        });
    }

    @Override
    public Map<String, AnalysisProvider<CharFilterFactory>> getCharFilters() {
        return Map.of(
            "mapping",
            AnalysisPlugin.requiresAnalysisSettings((index, environment, name, settings) -> new Replaced(name, settings)));
    }

    @Override
    public Map<String, AnalysisProvider<TokenFilterFactory>> getTokenFilters() {
        return Map.of("word_delimiter_graph", (index, environment, name, settings) -> new Parts(name, settings));
    }

    @Override
    public List<PreConfiguredTokenFilter> getPreConfiguredTokenFilters() {
        return List.of(
            PreConfiguredTokenFilter.singleton("asciifolding", true, ASCIIFoldingFilter::new),
            PreConfiguredTokenFilter.singleton("flatten_graph", false, FlattenGraphFilter::new));
    }

    @Override
    public List<PreConfiguredTokenizer> getPreConfiguredTokenizers() {
        return List.of(PreConfiguredTokenizer.singleton("whitespace", WhitespaceTokenizer::new));
    }

    private static class Replaced extends AbstractCharFilterFactory implements NormalizingCharFilterFactory {
        private final NormalizeCharMap pairs;

        Replaced(String name, Settings settings) {
            super(name);
            NormalizeCharMap.Builder found = new NormalizeCharMap.Builder();
            for (String rule : settings.getAsList("mappings")) {
                int arrow = rule.lastIndexOf("=>");
                found.add(decoded(rule.substring(0, arrow).trim()), decoded(rule.substring(arrow + 2).trim()));
            }
            pairs = found.build();
        }

        private static String decoded(String text) {
            StringBuilder found = new StringBuilder();
            for (int at = 0; at < text.length(); at++) {
                boolean escaped = text.startsWith("\\u", at) && at + 6 <= text.length();
                found.append(escaped ? (char) Integer.parseInt(text.substring(at + 2, at + 6), 16) : text.charAt(at));
                at += escaped ? 5 : 0;
            }
            return found.toString();
        }

        @Override
        public Reader create(Reader reader) {
            return new MappingCharFilter(pairs, reader);
        }
    }

    private static class Parts implements TokenFilterFactory {
        private final String name;
        private final int flags;

        Parts(String name, Settings settings) {
            this.name = name;
            flags = WordDelimiterGraphFilter.GENERATE_WORD_PARTS
                | WordDelimiterGraphFilter.GENERATE_NUMBER_PARTS
                | WordDelimiterGraphFilter.SPLIT_ON_CASE_CHANGE
                | WordDelimiterGraphFilter.SPLIT_ON_NUMERICS
                | WordDelimiterGraphFilter.STEM_ENGLISH_POSSESSIVE
                | (settings.getAsBoolean("preserve_original", false) ? WordDelimiterGraphFilter.PRESERVE_ORIGINAL : 0)
                | (settings.getAsBoolean("catenate_all", false) ? WordDelimiterGraphFilter.CATENATE_ALL : 0);
        }

        @Override
        public String name() {
            return name;
        }

        @Override
        public TokenStream create(TokenStream tokens) {
            return new WordDelimiterGraphFilter(tokens, flags, null);
        }
    }

    /** GET / and HEAD /. */
    private class About extends BaseRestHandler {
        @Override
        public String getName() {
            return "about";
        }

        @Override
        public List<Route> routes() {
            return List.of(new Route(RestRequest.Method.GET, "/"), new Route(RestRequest.Method.HEAD, "/"));
        }

        @Override
        protected RestChannelConsumer prepareRequest(RestRequest request, NodeClient client) {
            return channel -> {
                XContentBuilder answer = channel.newBuilder().startObject();
                answer.field("cluster_name", cluster.getClusterName().value());
                answer.startObject("version").field("number", Build.current().version());
                answer.field("build_flavor", "default").endObject().endObject();
                channel.sendResponse(new RestResponse(RestStatus.OK, answer));
            };
        }
    }

    /** POST /INDEX/_delete_by_query of up to 10,000 documents. */
    private static class DeleteByQuery extends BaseRestHandler {
        private static final List<String> IGNORED =
            List.of("preference", "wait_for_completion", "scroll_size", "requests_per_second", "slices");

        @Override
        public String getName() {
            return "delete_by_query";
        }

        @Override
        public List<Route> routes() {
            return List.of(new Route(RestRequest.Method.POST, "/{index}/_delete_by_query"));
        }

        @Override
        protected RestChannelConsumer prepareRequest(RestRequest request, NodeClient client) throws IOException {
            IGNORED.forEach(request::param);
            String[] indices = Strings.splitStringByCommaToArray(request.param("index"));
            boolean refresh = request.paramAsBoolean("refresh", false);
            boolean proceed = "proceed".equals(request.param("conflicts"));
            QueryBuilder query = queryOf(request);
            return channel -> client.threadPool().generic().execute(() -> {
                try {
                    XContentBuilder answer = channel.newBuilder();
                    boolean whole = delete(client, indices, query, refresh, answer);
                    channel.sendResponse(new RestResponse(whole || proceed ? RestStatus.OK : RestStatus.CONFLICT, answer));
                } catch (Exception error) {
                    failed(channel, error);
                }
            });
        }

        private static void failed(org.elasticsearch.rest.RestChannel channel, Exception error) {
            try {
                channel.sendResponse(new RestResponse(channel, error));
            } catch (IOException unsent) {
                throw new IllegalStateException(unsent);
            }
        }

        private static QueryBuilder queryOf(RestRequest request) throws IOException {
            if (request.hasContent()) {
                try (XContentParser parser = request.contentParser()) {
                    while (parser.nextToken() != null) {
                        if ("query".equals(parser.currentName())) {
                            parser.nextToken();
                            return AbstractQueryBuilder.parseTopLevelQuery(parser);
                        }
                    }
                }
            }
            return QueryBuilders.matchAllQuery();
        }

        private static boolean delete(
                NodeClient client, String[] indices, QueryBuilder query, boolean refresh, XContentBuilder answer)
                throws IOException {
            BulkRequest deletes = new BulkRequest();
            SearchSourceBuilder source =
                new SearchSourceBuilder().query(query).size(10_000).seqNoAndPrimaryTerm(true).fetchSource(false);
            SearchResponse found = client.search(new SearchRequest(indices).source(source)).actionGet();
            try {
                for (SearchHit hit : found.getHits().getHits()) {
                    deletes.add(new DeleteRequest(hit.getIndex(), hit.getId())
                        .setIfSeqNo(hit.getSeqNo())
                        .setIfPrimaryTerm(hit.getPrimaryTerm()));
                }
            } finally {
                found.decRef();
            }
            int conflicts = 0;
            if (deletes.numberOfActions() > 0) {
                deletes.setRefreshPolicy(refresh ? WriteRequest.RefreshPolicy.IMMEDIATE : WriteRequest.RefreshPolicy.NONE);
                for (BulkItemResponse item : client.bulk(deletes).actionGet().getItems()) {
                    conflicts += item.isFailed() ? 1 : 0;
                }
            }
            int all = deletes.numberOfActions();
            answer.startObject().field("total", all).field("deleted", all - conflicts);
            answer.field("version_conflicts", conflicts).startArray("failures").endArray().endObject();
            return conflicts == 0;
        }
    }
}
