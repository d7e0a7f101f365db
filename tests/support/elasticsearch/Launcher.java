import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.elasticsearch.bootstrap.BootstrapInfo;
import org.elasticsearch.common.logging.LogConfigurator;
import org.elasticsearch.common.settings.Settings;
import org.elasticsearch.env.Environment;
import org.elasticsearch.node.InternalSettingsPreparer;
import org.elasticsearch.node.Node;
import org.elasticsearch.plugins.PluginsLoader;

/** Runs one node of Elasticsearch in this JVM. Arguments: its home, then settings as name=value. */
public class Launcher {
    public static void main(String[] words) throws Exception {
        Path home = Path.of(words[0]);
        Settings.Builder given = Settings.builder().put("path.home", home.toString());
        for (int at = 1; at < words.length; at++) {
            String[] pair = words[at].split("=", 2);
            given.put(pair[0], pair[1]);
        }
        BootstrapInfo.init();
        Environment environment =
            InternalSettingsPreparer.prepareEnvironment(given.build(), Map.of(), home.resolve("config"), () -> "node");
        LogConfigurator.registerErrorListener();
        LogConfigurator.setNodeName("node");
        LogConfigurator.configure(environment, true);
        PluginsLoader modules = PluginsLoader.createPluginsLoader(
            PluginsLoader.loadModulesBundles(environment.modulesDir()),
            PluginsLoader.loadPluginsBundles(environment.pluginsDir()),
            Map.of(),
            false);
        Node node = new Node(environment, modules);
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                node.prepareForClose();
                node.close();
                node.awaitClose(10, TimeUnit.SECONDS);
            } catch (Exception error) {
                error.printStackTrace();
            }
            ended.countDown();
        }));
        node.start();
        ended.await();
    }
}
